"""Waiting on the directory that guard and trainer share."""

from __future__ import annotations

from itertools import accumulate, islice, pairwise
from pathlib import Path

import pytest

from fedsilo.errors import FileDamaged
from fedsilo.silo.volume import MAX_PAUSE_SECONDS, Volume, pauses
from tests.unit.conftest import FilledDisk


def test_a_quick_answer_is_noticed_at_once_and_a_slow_one_costs_little() -> None:
    """What takes t seconds is noticed after at most 1.5 t, and what takes long within 50 ms."""
    checks = list(accumulate(islice(pauses(), 200)))
    assert checks[0] < 0.005
    for before, after in pairwise(checks):
        assert after - before <= min(0.5 * before + checks[0], MAX_PAUSE_SECONDS) + 1e-9
    assert checks[-1] > 0.8 * 200 * MAX_PAUSE_SECONDS


def test_a_full_volume_delays_the_start(tmp_path: Path, filled_disk: FilledDisk) -> None:
    filled_disk.full = 3
    Volume(tmp_path / "volume").prepare()
    assert filled_disk.full == 0
    assert (tmp_path / "volume" / "drop").is_dir()


def test_a_link_in_a_directorys_place_is_named(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "inbox").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FileDamaged, match="inbox: is not a directory"):
        Volume(tmp_path).prepare()
    assert list((tmp_path / "elsewhere").iterdir()) == []
