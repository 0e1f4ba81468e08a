"""Ending guards and trainers that take their time: nobody waits for them."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Never

import pytest

from fedsilo.errors import FedsiloError
from fedsilo.files.json_files import write_json
from fedsilo.hub.client import HubAgent
from fedsilo.institution import executor as module
from fedsilo.institution.agent_run import AgentRun
from fedsilo.institution.executor import Executor
from fedsilo.institution.silo_file import WatchedSilo
from fedsilo.local.child_processes import GRACE_SECONDS, ChildProcess
from fedsilo.silo.agent.component import TRAINER_EXIT_SECONDS
from tests.unit.institution.parts import KEY, MEMBER, UID, agent, agent_of, directory, mirror_of, spec
from tests.unit.institution.test_executor import FakeForks, status_of

OTHER_UID = "0a1b2c3d-0000-4000-8000-000000000010"


class Stubborn:
    """A silo whose processes end only when a test says so, with a clock that a test sets."""

    def __init__(self, root: Path) -> None:
        self.forks = FakeForks()
        self.signals: list[tuple[int, int]] = []
        self.now = 0.0
        self.place = directory(root)
        watched = WatchedSilo(self.place, MEMBER, KEY.verify_key.to_text())
        self.executor = Executor(self.place, watched, KEY, lambda: self.now)

    def hear(self, *agents: HubAgent) -> None:
        self.executor.follow(mirror_of(*agents))
        self.executor.step()

    def end(self, *pids: int) -> None:
        """These end after all."""
        self.forks.ended |= dict.fromkeys(pids, -signal.SIGTERM)
        self.executor.step()

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def silo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stubborn:
    made = Stubborn(tmp_path / "silo")
    monkeypatch.setattr(module, "ForkServerClient", lambda label: made.forks)

    def record_signal(process: ChildProcess, number: int) -> None:
        assert process.pid is not None
        made.signals.append((process.pid, number))

    def waits(seconds: float) -> Never:
        raise AssertionError("it waits")

    monkeypatch.setattr(ChildProcess, "signal", record_signal)
    monkeypatch.setattr(time, "sleep", waits)
    return made


def test_a_part_that_takes_its_time_to_end_holds_up_no_other(silo: Stubborn) -> None:
    silo.hear(agent())
    first = set(silo.forks.started)
    assert len(first) == 2
    silo.hear(agent_of("another-job", OTHER_UID))
    assert set(silo.signals) == {(pid, signal.SIGTERM) for pid in first}
    assert len(silo.forks.started) == 4, "the other begins meanwhile"
    assert silo.executor.statuses()[OTHER_UID][1]["phase"] == "Starting"
    for _ in range(3):
        silo.executor.step()
    assert len(silo.signals) == 2, "asked once"
    silo.now += GRACE_SECONDS + 1
    for _ in range(3):
        silo.executor.step()
    assert silo.signals[2:] == [(pid, signal.SIGKILL) for pid in sorted(first)]
    assert set(silo.executor.parts) == {UID, OTHER_UID}
    assert silo.executor.busy
    silo.end(*first)
    assert set(silo.executor.parts) == {OTHER_UID}
    assert not first & set(silo.executor.pids().values())


def test_what_is_wanted_again_begins_when_it_has_ended(silo: Stubborn) -> None:
    silo.hear(agent())
    guard, trainer = sorted(silo.forks.started)
    silo.hear(agent(suspend=True))
    silo.hear(agent())
    assert len(silo.forks.started) == 2
    silo.end(guard)
    assert len(silo.forks.running("guard")) == 1
    assert silo.forks.running("trainer") == [trainer]
    silo.end(trainer)
    assert len(silo.forks.started) == 4
    silo.executor.step()
    assert status_of(silo.executor)["phase"] == "Running"


def test_the_same_job_under_another_uid_waits_for_what_the_first_holds(silo: Stubborn) -> None:
    silo.hear(agent())
    first = list(silo.forks.started)
    log = silo.place.volume(UID).audit / "log.jsonl"
    log.write_text("")
    again = HubAgent(agent().name, OTHER_UID, spec())
    silo.hear(again)
    silo.end(first[0])
    assert log.exists()
    assert len(silo.forks.started) == 2
    silo.end(first[1])
    silo.executor.step()
    assert len(silo.forks.started) == 4
    assert not log.exists()
    assert (silo.place.volume(OTHER_UID).audit / "log.jsonl").exists()


def test_a_trainer_that_goes_on_although_its_guard_is_done_is_ended(silo: Stubborn) -> None:
    silo.hear(agent())
    (guard,), (trainer,) = silo.forks.running("guard"), silo.forks.running("trainer")
    write_json(silo.place.volume(UID).task, {"step": "finish"})
    silo.forks.ended[guard] = 0
    for _ in range(3):
        silo.executor.step()
    silo.now += TRAINER_EXIT_SECONDS + 1
    for _ in range(3):
        silo.executor.step()
    assert silo.signals == [(trainer, signal.SIGTERM)]
    silo.end(trainer)
    silo.executor.step()
    assert status_of(silo.executor)["phase"] == "Finished"


def test_at_the_end_all_are_asked_at_once_and_then_killed(silo: Stubborn) -> None:
    silo.hear(agent(), agent_of("another-job", OTHER_UID))
    pids = sorted(silo.forks.started)
    assert len(pids) == 4
    silo.executor.end(silo.sleep)
    assert sorted(silo.signals[:4]) == [(pid, signal.SIGTERM) for pid in pids]
    assert sorted(silo.signals[4:]) == [(pid, signal.SIGKILL) for pid in pids]
    assert silo.now < 3 * GRACE_SECONDS
    assert silo.forks.closed


def test_an_error_is_said_again_when_it_is_back(
    silo: Stubborn, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*_: object) -> Never:
        raise FedsiloError("the volume is away")

    silo.hear(agent(suspend=True))
    for _ in range(2):
        with monkeypatch.context() as patch:
            patch.setattr(AgentRun, "step", fails)
            for _ in range(3):
                silo.executor.step()
        silo.executor.step()
    assert [text for text in caplog.messages if "is away" in text] == [
        f"SiloAgent {agent().name}: the volume is away"
    ] * 2


@pytest.mark.parametrize("depth", [150, 3000])
def test_a_specification_without_a_bottom_holds_up_no_other(
    silo: Stubborn, depth: int, caplog: pytest.LogCaptureFixture
) -> None:
    """JSON that could be read may be too deep to be written."""
    deep: object = []
    for _ in range(depth):
        deep = [deep]
    odd = agent_of("another-job", OTHER_UID)
    for _ in range(2):
        silo.hear(HubAgent(odd.name, OTHER_UID, {**odd.spec, "trust": deep}), agent())
    assert set(silo.executor.parts) == {UID}
    assert len(silo.forks.started) == 2
    assert len([text for text in caplog.messages if "in one another" in text]) == 1
