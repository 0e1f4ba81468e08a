"""The aggregator's status: the times of a round are told once, and silos are counted in every state."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from fedsilo.engine.round_engine import RoundEngine
from fedsilo.engine.status import Status
from tests.federate import drive, job_spec, local_silos, open_engine, runners, skewed

BEGIN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


class Clock:
    def __init__(self) -> None:
        self.time = BEGIN

    def now(self) -> datetime:
        return self.time


class Watched:
    """A job of two silos and two rounds, the silos' answers, and the status that is published of it."""

    def __init__(self, root: Path) -> None:
        self.clock = Clock()
        silos = skewed(root, {"s0": (0, 1, 2, 3), "s1": (0, 1, 2, 3)})
        spec = job_spec("fedavg", 2, rounds=2, participation={"roundDeadline": "10m"})
        self.root, self.spec = root, spec
        self.federation = self.open()
        self.silos = local_silos(root, runners(spec, silos, root))
        self.status = self.watch(self.federation)

    def open(self) -> RoundEngine:
        return open_engine(self.root / "aggregator", self.spec)

    def watch(self, federation: RoundEngine) -> Status:
        return Status(federation, Counter(), Counter(), self.clock.now)

    def after(self, seconds: float, served: float | None = None) -> dict[str, Any]:
        """The status when so much time went by, of which so much served the round."""
        self.clock.time += timedelta(seconds=seconds)
        self.federation.wait(seconds if served is None else served)
        return self.status.document("")


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    return Watched(tmp_path)


def times(document: dict[str, Any]) -> tuple[str | None, str | None]:
    return document["roundStartTime"], document["roundDeadline"]


def test_the_times_of_a_round_do_not_move_while_it_is_served(watched: Watched) -> None:
    for _ in range(500):
        document = watched.after(0.25, served=0.249)
        assert times(document) == ("2026-01-02T03:04:05Z", "2026-01-02T03:14:05Z")


def test_the_next_round_has_its_own_times(watched: Watched) -> None:
    watched.after(60)
    for silo in watched.silos:
        silo.answer(watched.federation)
    assert watched.status.document("")["siloProgress"] == "2/2"
    watched.federation.settle()
    document = watched.status.document("")
    assert times(document) == ("2026-01-02T03:05:05Z", "2026-01-02T03:15:05Z")
    assert (document["round"], document["siloProgress"]) == (1, "0/2")


def test_a_deadline_moves_when_silos_could_not_be_served(watched: Watched) -> None:
    watched.after(60)
    document = watched.after(120, served=0)
    assert times(document) == ("2026-01-02T03:04:05Z", "2026-01-02T03:16:05Z")


def test_a_restarted_aggregator_gives_the_round_the_time_that_is_left(watched: Watched) -> None:
    watched.after(60)
    watched.clock.time += timedelta(hours=5)
    document = watched.watch(watched.open()).document("")
    assert times(document) == ("2026-01-02T08:04:05Z", "2026-01-02T08:14:05Z")


def test_the_end_has_no_times_and_counts_the_silos_of_the_last_round(watched: Watched) -> None:
    drive(watched.federation, watched.silos)
    for federation in (watched.federation, watched.open()):
        document = watched.watch(federation).document("")
        assert times(document) == (None, None)
        assert (document["round"], document["siloProgress"], document["step"]) == (2, "2/2", None)
        assert document["model"]["path"] == "model.safetensors"


def test_curve_and_receipts_are_those_of_the_history(watched: Watched) -> None:
    drive(watched.federation, watched.silos)
    document = watched.watch(watched.open()).document("")
    last = watched.federation.history()[-1]
    assert [point["round"] for point in document["curve"]] == [1, 2]
    assert document["curve"][-1]["training"] == last["training"]
    assert document["parameters"] == sum(
        array.size for array in watched.federation.state.tree("model").values()
    )
    updates = {silo["name"]: silo["update"] for silo in document["silos"]}
    assert updates == {name: last["updates"][f"r00002-train-{name}"] for name in ("s0", "s1")}


def test_a_failed_job_has_no_deadline_any_more(watched: Watched) -> None:
    watched.silos[0].answer(watched.federation)
    failing = watched.silos[1].reference
    watched.federation.fail(failing, f"r00001-train-{failing.rpartition('/')[2]}", "DataInvalid", "no file")
    document = watched.status.document("")
    assert document["phase"] == "Failed"
    assert times(document) == (None, None)
    assert document["siloProgress"] == "1/2"
