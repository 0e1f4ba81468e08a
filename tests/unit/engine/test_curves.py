"""Event files, as TensorBoard's own reader understands them."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest

from fedsilo.engine.curves import FILE, CurvesSink, figures
from fedsilo.engine.status import EngineStatus

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

STATUS = EngineStatus()


class Rounds:
    """A history that grows."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []

    def history(self) -> list[dict[str, Any]]:
        return self.lines

    def complete(self, accuracy: float | None = None, loss: float = 1.0) -> None:
        self.lines.append(
            {
                "round": len(self.lines) + 1,
                "training": {"loss": loss},
                "silos": {"silo-north/north": {"loss": loss + 1}, "silo-süd/süd": {"loss": loss - 1}},
                "bytes": {"silo-north/north": 70_000, "silo-süd/süd": 300},
                "seconds": 1.5,
                **({} if accuracy is None else {"metrics": {"accuracy": accuracy}}),
            }
        )


@pytest.fixture
def rounds() -> Rounds:
    return Rounds()


def curves(rounds: Rounds, directory: Path, start: float = 1000.0) -> CurvesSink:
    times = iter(range(10_000))
    return CurvesSink(rounds.history, directory, lambda: start + next(times))


def read(directory: Path) -> dict[str, list[tuple[int, float]]]:
    """Tag -> its points, by TensorBoard's own code."""
    found = EventAccumulator(str(directory), size_guidance={"tensors": 0, "scalars": 0})
    found.Reload()
    tags = found.Tags()
    assert not tags["tensors"]
    return {tag: [(point.step, point.value) for point in found.Scalars(tag)] for tag in tags["scalars"]}


def test_every_figure_of_a_round_is_a_point(rounds: Rounds, tmp_path: Path) -> None:
    written = curves(rounds, tmp_path)
    written.publish(STATUS)
    assert read(tmp_path) == {}
    rounds.complete(accuracy=0.5, loss=2.0)
    written.publish(STATUS)
    written.publish(STATUS)
    rounds.complete(loss=1.0)
    rounds.complete(accuracy=0.75, loss=float("inf"))
    written.publish(STATUS)
    found = read(tmp_path)
    assert found == {
        "evaluation/accuracy": [(1, 0.5), (3, 0.75)],
        "training/loss": [(1, 2.0), (2, 1.0), (3, float("inf"))],
        "silos loss/north": [(1, 3.0), (2, 2.0), (3, float("inf"))],
        "silos loss/süd": [(1, 1.0), (2, 0.0), (3, float("inf"))],
        "bytes/north": [(1, 70_000), (2, 70_000), (3, 70_000)],
        "bytes/süd": [(1, 300), (2, 300), (3, 300)],
        "round/seconds": [(1, 1.5), (2, 1.5), (3, 1.5)],
    }


def test_times_are_those_at_which_a_round_was_noted(rounds: Rounds, tmp_path: Path) -> None:
    written = curves(rounds, tmp_path)
    for _ in range(3):
        rounds.complete()
        written.publish(STATUS)
    found = EventAccumulator(str(tmp_path))
    found.Reload()
    assert [point.wall_time for point in found.Scalars("training/loss")] == [1001.0, 1002.0, 1003.0]


@pytest.mark.parametrize("lost", [0, 1, 11, 12, 13, 50, 250, 400, 10_000])
def test_whatever_is_lost_of_the_file_is_written_again(rounds: Rounds, tmp_path: Path, lost: int) -> None:
    for _ in range(4):
        rounds.complete(accuracy=0.5)
    curves(rounds, tmp_path).publish(STATUS)
    path, expected = tmp_path / FILE, read(tmp_path)
    path.write_bytes(path.read_bytes()[: -lost or None])
    again = curves(rounds, tmp_path)
    again.publish(STATUS)
    assert read(tmp_path) == expected
    rounds.complete()
    again.publish(STATUS)
    assert len(read(tmp_path)["training/loss"]) == 5


def test_what_was_changed_is_cut_off_with_all_that_follows(rounds: Rounds, tmp_path: Path) -> None:
    for _ in range(4):
        rounds.complete(accuracy=0.5)
    curves(rounds, tmp_path).publish(STATUS)
    path, expected = tmp_path / FILE, read(tmp_path)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    curves(rounds, tmp_path).publish(STATUS)
    assert read(tmp_path) == expected


def test_a_disk_that_is_full_stops_nothing(rounds: Rounds, tmp_path: Path) -> None:
    written = curves(rounds, tmp_path / "missing")
    rounds.complete()
    written.publish(STATUS)
    (tmp_path / "missing").mkdir()
    written.publish(STATUS)
    assert read(tmp_path / "missing")["training/loss"] == [(1, 1.0)]


def test_a_number_beyond_single_precision_is_infinite(rounds: Rounds, tmp_path: Path) -> None:
    rounds.complete(loss=1e300)
    curves(rounds, tmp_path).publish(STATUS)
    assert read(tmp_path)["training/loss"] == [(1, float("inf"))]
    assert figures(rounds.lines[0])["training/loss"] == 1e300
