"""A silo's secret gives the same numbers after every restart, and others for everybody else."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from fedsilo.errors import FileDamaged
from fedsilo.silo import secret
from fedsilo.silo.secret import Secret


def drawn_numbers(secret: Secret, *purpose: str | int) -> list[float]:
    return [float(number) for number in secret.generator(*purpose).random(4)]


def test_a_restart_draws_the_same_numbers(tmp_path: Path) -> None:
    path = tmp_path / "secret.json"
    first = drawn_numbers(Secret(path), "noise")
    written = path.read_bytes()
    assert drawn_numbers(Secret(path), "noise") == first
    assert path.read_bytes() == written
    assert path.stat().st_mode & 0o777 == 0o600


def test_the_secret_is_on_the_disk_before_a_number_is_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(_: int) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", crash)
        with pytest.raises(KeyboardInterrupt):
            Secret(tmp_path / "secret.json").generator("noise")
    assert not (tmp_path / "secret.json").exists()


def test_each_silo_each_run_and_each_purpose_draw_others(tmp_path: Path) -> None:
    one, other, memory = Secret(tmp_path / "a.json"), Secret(tmp_path / "b.json"), Secret()
    found = [
        drawn_numbers(one, "noise"),
        drawn_numbers(one, "noise", 1),
        drawn_numbers(other, "noise"),
        drawn_numbers(memory, "noise"),
    ]
    assert len({tuple(numbers) for numbers in found}) == len(found)
    assert drawn_numbers(memory, "noise") == found[-1]


def test_the_numbers_follow_from_all_of_the_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for place in (0, 31):
        monkeypatch.setattr(secret, "draw", lambda place=place: np.eye(32, dtype=np.uint8)[place].tobytes())
        found.append(drawn_numbers(Secret(), "noise"))
    assert found[0] != found[1]


@pytest.mark.parametrize("damage", [b"", b'{"secret": "00"}', b"[]"], ids=["empty", "no digest", "a list"])
def test_a_damaged_secret_is_reported_and_not_replaced(tmp_path: Path, damage: bytes) -> None:
    path = tmp_path / "secret.json"
    Secret(path).generator("noise")
    path.write_bytes(damage)
    with pytest.raises(FileDamaged, match=r"secret\.json: .*restore it from a backup, or remove it"):
        Secret(path).generator("noise")
    assert path.read_bytes() == damage
