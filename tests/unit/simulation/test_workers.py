"""Worker processes of a simulation: the same bytes, nobody left behind, and a lost one is a failure like any other."""

from __future__ import annotations

import gc
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from fedsilo.errors import FedsiloError, ManifestInvalid, QuorumLost
from fedsilo.learning.devices import prepare_torch
from fedsilo.simulation import simulate as simulate_module
from fedsilo.simulation import workers as workers_module
from fedsilo.simulation.execution import ExecutionPlan
from fedsilo.simulation.simulate import open_simulation, simulate
from tests.tiers import mark_thorough
from tests.unit.methods.forms import FORMS
from tests.unit.simulation.digits import manifest_of, sharing


@pytest.mark.parametrize("form", mark_thorough(["fedavg", "scaffold", "fedconcat", "creff"], {"scaffold"}))
def test_workers_change_no_byte(tmp_path: Path, form: str) -> None:
    method, config = FORMS[form]
    manifest = manifest_of(sharing(5), training={"rounds": 3}, method={"name": method, "config": config})
    sequential = simulate(manifest, tmp_path, tmp_path / "sequential")
    shared = simulate(manifest, tmp_path, tmp_path / "shared", ExecutionPlan(workers=2))
    assert sequential.result is not None and shared.result is not None
    assert shared.result.sha256 == sequential.result.sha256
    assert shared.history() == sequential.history()


def processes(simulation: Any) -> list[Any]:
    """Worker processes of the simulation."""
    return [worker.process for worker in simulation.backend._workers]


def test_the_loss_of_a_worker_is_a_silos_failure_and_that_of_all_the_jobs(tmp_path: Path) -> None:
    manifest = manifest_of(sharing(3), participation={"minSilos": 1})
    simulation = open_simulation(manifest, tmp_path, tmp_path, ExecutionPlan(workers=2))
    first, second = processes(simulation)
    os.kill(first.pid, signal.SIGKILL)
    first.join()
    for _ in simulation.run():
        pass
    assert simulation.failure is None
    said = [why for line in simulation.history() for why in line["failed"].values()]
    assert said == ["TrainerLost: its worker ended with exit code -9"]
    simulation.close()
    assert not second.is_alive()
    simulation = open_simulation(manifest, tmp_path, tmp_path, ExecutionPlan(workers=1))
    os.kill(processes(simulation)[0].pid, signal.SIGKILL)
    for _ in simulation.run():
        pass
    assert isinstance(simulation.failure, FedsiloError)
    assert "every worker process has ended" in str(simulation.failure)


def test_workers_do_not_collect_what_was_there_before_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def count_frozen_objects(threads: int, deterministic: bool) -> None:
        (tmp_path / str(os.getpid())).write_text(str(gc.get_freeze_count()))
        prepare_torch(threads, deterministic)

    before = gc.get_freeze_count()
    monkeypatch.setattr(workers_module, "prepare_torch", count_frozen_objects)
    simulation = open_simulation(manifest_of(sharing(2)), tmp_path, tmp_path, ExecutionPlan(workers=2))
    workers = [process.pid for process in processes(simulation)]
    for _ in simulation.run():
        pass
    simulation.close()
    frozen = [int((tmp_path / str(pid)).read_text()) for pid in workers]
    assert min(frozen) > before + 10_000
    assert gc.get_freeze_count() == before  # this process may last for long


def test_a_job_that_fails_leaves_no_process(tmp_path: Path) -> None:
    manifest = manifest_of(sharing(2, maxRounds=1))
    simulation = open_simulation(manifest, tmp_path, tmp_path, ExecutionPlan(workers=2))
    started = processes(simulation)
    for _ in simulation.run():
        pass
    assert isinstance(simulation.failure, QuorumLost)
    simulation.close()
    assert not any(process.is_alive() for process in started)


def test_workers_on_a_gpu_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(simulate_module, "pick_device", lambda _: torch.device("cuda"))
    with pytest.raises(ManifestInvalid, match="share the cores of a CPU"):
        simulate(manifest_of(sharing(1)), tmp_path, tmp_path, ExecutionPlan(workers=2))
