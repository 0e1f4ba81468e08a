"""A silo's further processes: they train as one does, and none that goes wrong holds up a round or is left behind."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsilo.api.job import FederatedJobSpec
from fedsilo.errors import FedsiloError
from fedsilo.learning.data_parallel import SINGLE_PROCESS_GROUP, ProcessGroup
from fedsilo.learning.models import initial_model
from fedsilo.methods import registry
from fedsilo.methods.interface import Reply, SiloTask
from fedsilo.methods.state import State
from fedsilo.silo.context import open_context
from fedsilo.silo.runner import TaskRunner
from fedsilo_agent.trainer.rank import end_with_parent
from fedsilo_agent.trainer.ranks import RankFailed, RankGroup
from tests.federate import job_spec, silo_of_file
from tests.unit.agent.test_trainer import documents

PAIR = ProcessGroup(0, 2)
RanksOpener = Callable[..., tuple[RankGroup, TaskRunner]]


@pytest.fixture
def open_ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RanksOpener]:
    """Opens the two processes of a silo of 13 examples, and the same silo as one process."""
    generator = np.random.default_rng(3)
    images, labels = generator.random((13, 6), np.float32), np.arange(13) % 4
    np.savez(tmp_path / "data.npz", images=images, labels=labels)
    silo = silo_of_file(tmp_path / "data.npz", "north")
    made: list[RankGroup] = []
    before = dict(os.environ)

    def fail(failure: FedsiloError) -> None:
        pytest.fail(str(failure))

    def make(seconds: float = 60.0, **training: Any) -> tuple[RankGroup, TaskRunner]:
        spec = job_spec(
            "fedavg", ["north"], 5, training={"batchSize": 4, "rounds": 5, "device": "cpu", **training}
        )
        manifest = spec.model_dump(by_alias=True, mode="json", exclude_none=True)
        arguments = [*documents(tmp_path, manifest, silo), "--data-root", str(tmp_path)]
        one, two = (runner(spec, group) for group in (SINGLE_PROCESS_GROUP, PAIR))
        ranks = RankGroup(two, arguments, seconds, fail)
        made.append(ranks)
        return ranks, one

    def runner(spec: FederatedJobSpec, group: ProcessGroup) -> TaskRunner:
        return TaskRunner(registry.bind(spec), open_context(spec, silo, tmp_path, group))

    yield make
    for ranks in made:
        ranks.close()
    for name in os.environ.keys() - before.keys():
        monkeypatch.delenv(name)


def task(runner: TaskRunner, number: int = 1) -> SiloTask:
    model = initial_model(runner.context.spec)
    return SiloTask("train", "train", number, number, 5, {"model": model}, {})


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_two_processes_train_the_model_of_one(open_ranks: RanksOpener) -> None:
    ranks, one = open_ranks(localEpochs=3, optimizer={"name": "adam", "state": "keep"})
    private, alone = State(), State()
    for number in (1, 2):
        shared, single = ranks.run(task(one, number), private), one.run(task(one, number), alone)
        assert (shared.samples, list(shared.metrics)) == (single.samples, ["loss"])
        assert shared.metrics["loss"] == pytest.approx(single.metrics["loss"], abs=1e-6)
        for name, array in single.tensors.items():
            assert np.abs(shared.tensors[name] - array).max() < 1e-6, name
        assert shared.private is not None and single.private is not None
        private, alone = shared.private, single.private
    [pid] = ranks.pids
    os.kill(pid, signal.SIGKILL)
    while not ranks._others[0].has_ended:
        time.sleep(0.01)
    with pytest.raises(
        RankFailed, match=r"^training: rank 1: ended with exit code -9, as where memory is short; "
    ):
        ranks.run(task(one), private)
    assert ranks.pids == [] and is_gone(pid)


@pytest.mark.thorough
def test_a_function_runs_in_every_rank_and_whatever_one_does_ends_the_task(open_ranks: RanksOpener) -> None:
    ranks, one = open_ranks(trainer="python:tests.unit.learning.trainers:in_all_ranks")

    def fails(number: int, message: str) -> None:
        with pytest.raises(FedsiloError, match=message) as caught:
            ranks.run(task(one, number), State())
        assert caught.value.reason == "MethodError"
        assert ranks.pids == []

    reply: Reply = ranks.run(task(one), State())
    assert reply.private is not None
    assert reply.private.tree("trainer")["pid"].item() == os.getpid()
    ranks._seconds = 3.0  # both processes wait for their next task
    fails(4, r"^training: rank 1: does not answer$")
    ranks._seconds = 60.0
    fails(
        2, r"^training: rank 1: spec.training.trainer: .*in_all_ranks': raises ValueError: no such layer at "
    )
    fails(3, r"^training: rank 1: ended with exit code -9, as where memory is short; ")


def test_the_system_ends_a_rank_with_its_trainer() -> None:
    """Also where the trainer left no time to close anything, and something else holds the pipe open."""
    reading, writing = os.pipe()
    trainer = os.fork()
    if trainer == 0:
        parent = os.getpid()
        if (child := os.fork()) == 0:
            end_with_parent(parent)
            os.write(writing, b"ready")
            signal.pause()
        os.read(reading, 5)
        os.write(writing, child.to_bytes(8, "big"))
        signal.pause()
    os.set_inheritable(reading, True)
    try:
        while len(found := os.read(reading, 8)) < 8:
            os.write(writing, found)
    finally:
        os.kill(trainer, signal.SIGKILL)
        os.waitpid(trainer, 0)
    child = int.from_bytes(found, "big")
    until = time.monotonic() + 60
    while not is_gone(child) and time.monotonic() < until:
        time.sleep(0.01)
    assert is_gone(child)
