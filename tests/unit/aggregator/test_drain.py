"""An aggregator that is started again after the last answers waits for the silos that gave them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from fedsilo.files.json_files import write_json
from fedsilo_aggregator import rounds
from fedsilo_aggregator.http import AggregatorService
from fedsilo_aggregator.lost_silos import LostSilosFile
from tests.federate import job_spec, local_silos, open_engine, runners, skewed_silos

NORTH, SOUTH = "silo-north/north", "silo-south/south"


class Service:
    """A job of which an earlier process has taken no answer; nobody asks this one until the test says so."""

    def __init__(self) -> None:
        self.last_seen: dict[str, float] = {}
        self.finished: set[str] = set()
        self.uploads = SimpleNamespace(close=self._close_uploads)
        self.ticks = 0
        current = SimpleNamespace(tasks={}, accepted={}, exchange=Mock(round=1))
        self.engine = SimpleNamespace(
            current_exchange=current,
            ended=False,
            identity=SimpleNamespace(silos={NORTH: None, SOUTH: None}),
            failure=None,
            awaits_answers=False,
            history=list,
            rounds=1,
            wait=lambda _: None,
            settle=self._settle,
            sweep=lambda: None,
        )

    async def wait_for_change(self, _: float) -> None:
        self.ticks += 1
        await asyncio.sleep(0)

    def announce_change(self) -> None:
        """Do nothing, because nobody listens for changes."""

    def _settle(self) -> None:
        self.engine.ended, self.engine.current_exchange = True, None

    async def _close_uploads(self) -> None:
        """No upload is under way."""


async def test_silos_that_answered_before_the_restart_are_told_the_end(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(rounds, "TICK_SECONDS", 0.0)
    spec, silos = job_spec("fedavg", 2), skewed_silos(tmp_path, {"s0": [0, 1], "s1": [2, 3]})
    first, second = local_silos(tmp_path, runners(spec, silos, tmp_path))
    assert first.answer(open_engine(tmp_path / "aggregator", spec))
    engine = open_engine(tmp_path / "aggregator", spec)
    task = engine.task(second.reference)
    assert task is not None
    engine.fail(second.reference, task.id, "DataInvalid", "no data")
    service = AggregatorService(engine, {})
    work = asyncio.ensure_future(rounds.run_rounds(service, Mock(), Mock(), LostSilosFile(None)))
    while not engine.ended:
        await asyncio.sleep(0)
    for _ in range(20):
        await asyncio.sleep(0)
    assert not work.done()
    service.finished.add(first.reference)
    await asyncio.wait_for(work, 10)


async def test_an_aggregator_that_was_killed_after_the_end_tells_its_silos(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rounds, "TICK_SECONDS", 0.0)
    service: Any = Service()
    service.engine.ended, service.engine.current_exchange = True, None
    work = asyncio.ensure_future(rounds.run_rounds(service, Mock(), Mock(), LostSilosFile(None)))
    while service.ticks < 20 and not work.done():
        await asyncio.sleep(0)
    assert not work.done()
    service.finished = {NORTH, SOUTH}
    await asyncio.wait_for(work, 10)


async def test_nobody_is_waited_for_whose_guard_is_gone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(rounds, "TICK_SECONDS", 0.0)
    service: Any = Service()
    service.engine.ended, service.engine.current_exchange = True, None
    service.finished = {NORTH}
    gone = {"reason": "GuardLost", "message": "the guard ended with exit code -9"}
    write_json(tmp_path / "lost.json", {SOUTH: gone})
    lost = LostSilosFile(tmp_path / "lost.json")
    await asyncio.wait_for(rounds.run_rounds(service, Mock(), Mock(), lost), 10)


async def test_nobody_is_waited_for_who_has_not_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "TICK_SECONDS", 0.0)
    service: Any = Service()
    await asyncio.wait_for(rounds.run_rounds(service, Mock(), Mock(), LostSilosFile(None)), 10)


async def test_a_silo_whose_update_was_lost_before_the_fold_is_given_its_task_again(tmp_path: Path) -> None:
    spec, silos = job_spec("fedavg", 2), skewed_silos(tmp_path, {"s0": [0, 1], "s1": [2, 3]})
    engine = open_engine(tmp_path / "aggregator", spec)
    service = AggregatorService(engine, {})
    for silo in local_silos(tmp_path, runners(spec, silos, tmp_path)):
        task = engine.task(silo.reference)
        assert task is not None
        assert service._is_given(silo.reference, task.id, "", in_vain=False)
        assert silo.answer(engine)
    (tmp_path / "aggregator/open/r00001-train/r00001-train-s1.update").unlink()
    await rounds._advance(service, 0.0)
    again = engine.task("silos/s1")
    assert again is not None
    assert service._is_given("silos/s1", again.id, again.id, in_vain=False)
