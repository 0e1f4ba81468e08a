"""The control group of the cluster's pods has its share of a machine that does other things too."""

from __future__ import annotations

from pathlib import Path

import pytest

from hack.cluster.machine import weigh_group


@pytest.mark.parametrize(("name", "default"), [("cpu.shares", 1024), ("cpu.weight", 100)])
def test_all_pods_together_weigh_more_than_one_process(tmp_path: Path, name: str, default: int) -> None:
    (tmp_path / name).write_text(str(default))
    weigh_group(tmp_path)
    assert int((tmp_path / name).read_text()) >= 10 * default


def test_a_group_of_other_controllers_has_no_weight(tmp_path: Path) -> None:
    weigh_group(tmp_path)
    assert not list(tmp_path.iterdir())
