"""What a simulation keeps of the rules: policies, contracts, quorum; what it shares: datasets."""

from __future__ import annotations

import json
import resource
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedsilo.errors import QuorumLost, SiloFailed
from fedsilo.files.durable import DISK_FULL_ERRNOS
from fedsilo.learning.models import Model
from fedsilo.learning.saved import load_model
from fedsilo.methods.interface import Reply, SiloTask
from fedsilo.methods.state import State
from fedsilo.silo.examples import load_examples
from fedsilo.simulation.data import SharedData
from fedsilo.simulation.execution import SEQUENTIAL_PLAN, ExecutionPlan
from fedsilo.simulation.silos import SimulatedFailure, SimulatedSilo, SimulatedTask
from fedsilo.simulation.simulate import open_simulation, simulate
from fedsilo.wire import Contract, ExpectedBlock
from tests.integration.local.manifest import python
from tests.unit.simulation.digits import manifest_of, sharing

CONTRACT = Contract(
    (
        ExpectedBlock("model", "w", (2,), "float32"),
        ExpectedBlock("class_counts", "count/1", (), "int64", 1),
    ),
    ("loss",),
)
GOOD_REPLY = Reply({"w": np.ones(2, np.float32)}, samples=3, metrics={"loss": 0.5})


class Replying:
    """A runner with one reply to everything."""

    def __init__(self, reply: Any) -> None:
        self.reply = reply

    def run(self, task: SiloTask, private: State) -> Any:
        if isinstance(self.reply, BaseException):
            raise self.reply
        return self.reply


def checked_answer(tmp_path: Path, reply: Any, **policy: Any) -> Any:
    """What a silo with this policy makes of a reply."""
    manifest = manifest_of(sharing(1, "iid", **policy))
    opened: Any = open_simulation(manifest, tmp_path, tmp_path)
    silo: SimulatedSilo = opened.backend._silos["silo-s0/s0"]
    silo.runner = Replying(reply)  # type: ignore[assignment]
    task = SiloTask("train", "train", 1, 1, 1, {}, {})
    return silo.answer(SimulatedTask("silo-s0/s0", "r00001-train-s0", task, CONTRACT, State()))


def test_an_answer_holds_what_the_contract_allows_by_kind(tmp_path: Path) -> None:
    reply = replace(
        GOOD_REPLY, tensors={"count/1": np.array(7), **GOOD_REPLY.tensors}, support={"count/1": 7}
    )
    given = checked_answer(tmp_path, reply)
    assert [list(tree) for tree in given.blocks.values()] == [["w"], ["count/1"]]
    assert (given.samples, given.metrics, given.size) == (3, {"loss": 0.5}, 16)
    with pytest.raises(ValueError, match="read-only"):
        given.blocks["model"]["w"][0] = 2


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"tensors": {}}, "missing-block: block w"),
        ({"tensors": {"w": np.ones(3, np.float32)}}, "wrong-shape: block w"),
        ({"tensors": {"w": np.ones(2)}}, "wrong-dtype: block w"),
        ({"tensors": {**GOOD_REPLY.tensors, "v": np.ones(2)}}, "unexpected-block: block 'v'"),
        ({"tensors": {"w": np.array([1, np.nan], np.float32)}}, "not-finite: block w"),
        (
            {"tensors": {**GOOD_REPLY.tensors, "count/1": np.array(1)}, "support": {"count/1": 1}},
            "stands on 1 samples",
        ),
        ({"metrics": {"secret": 1.0}}, "unexpected-metric: metric secret"),
        ({"metrics": {"loss": float("nan")}}, "reply: metrics"),
        ({"metrics": {"loss": 1.7e308}}, "out-of-range: metric loss"),
        ({"samples": -1}, "reply: samples -1 is not a count"),
    ],
)
def test_what_a_guard_refuses_is_refused_here(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    failure = checked_answer(tmp_path, replace(GOOD_REPLY, **change), minSamplesPerClass=5)
    assert isinstance(failure, SimulatedFailure)
    assert failure.reason == "PolicyRefused"
    assert said in failure.message


def test_what_a_method_raises_is_a_failure_of_the_silo(tmp_path: Path) -> None:
    assert checked_answer(tmp_path, KeyError("w")) == SimulatedFailure("TrainerError", "KeyError: 'w'")


def test_a_method_that_ends_the_process_is_a_failure_of_the_silo(tmp_path: Path) -> None:
    assert checked_answer(tmp_path, SystemExit(0)) == SimulatedFailure("TrainerError", "SystemExit: 0")


@pytest.mark.parametrize("limit", [{"maxAnsweredRounds": 1}, {"maxBytesPerJob": "7k"}])
@pytest.mark.parametrize(
    "execution", [SEQUENTIAL_PLAN, ExecutionPlan(workers=2)], ids=["one process", "workers"]
)
def test_what_a_silo_has_sent_counts_over_the_rounds(
    tmp_path: Path, limit: dict[str, Any], execution: ExecutionPlan
) -> None:
    silos = sharing(2, "iid")
    silos[1]["spec"]["policy"] |= limit
    manifest = manifest_of(silos, participation={"minSilos": 1})
    done = simulate(manifest, tmp_path, tmp_path, execution)
    answered = [sorted(line["samples"]) for line in done.history()]
    assert answered == [["silo-s0/s0", "silo-s1/s1"], ["silo-s0/s0"]]


def test_a_silo_whose_dates_are_over_answers_nothing(tmp_path: Path) -> None:
    silos = sharing(2, "iid")
    silos[1]["spec"]["policy"]["notAfter"] = "2001-01-01T00:00:00Z"
    with pytest.raises(QuorumLost, match=r"policy\.notAfter is 2001-01-01T00:00:00Z, which is over"):
        simulate(manifest_of(silos), tmp_path, tmp_path)


def test_a_policy_forbids_here_with_the_message_of_a_guard(tmp_path: Path) -> None:
    silos = sharing(2, "iid")
    silos[1]["spec"]["policy"]["methods"] = ["fedprox"]
    with pytest.raises(
        QuorumLost, match=r"silo-s1/s1 failed: PolicyRefused: silo s1: policy\.methods allows fedprox"
    ):
        simulate(manifest_of(silos), tmp_path, tmp_path)
    done = simulate(manifest_of(silos, participation={"minSilos": 1}), tmp_path, tmp_path)
    assert [sorted(line["samples"]) for line in done.history()] == [["silo-s0/s0"]] * 2
    assert "policy.methods" in done.history()[0]["failed"]["silo-s1/s1"]


def test_wrong_data_of_a_silo_fail_the_job(tmp_path: Path) -> None:
    silos = sharing(2, "iid")
    silos[0]["spec"]["datasets"][0] |= python("nothing") | {"partition": None}
    with pytest.raises(SiloFailed, match="silo silo-s0/s0: dataset 'digits'") as raised:
        simulate(manifest_of(silos, participation={"minSilos": 1}), tmp_path, tmp_path)
    assert raised.value.reason == "DataInvalid"


def test_silos_that_divide_a_dataset_hold_it_once_and_see_their_own(tmp_path: Path) -> None:
    manifest = manifest_of(sharing(3), data={"validationFraction": 0.2})
    data = SharedData(manifest.job.spec, tmp_path)
    for silo in manifest.silos:
        for shared, own in zip(
            data.examples(silo), load_examples(manifest.job.spec, silo, tmp_path), strict=True
        ):
            assert shared.features.equal(own.features)
            assert shared.labels.equal(own.labels)
    held = [data.examples(silo)[part].pool for silo in manifest.silos for part in (0, 1)]
    pools = {pool.data_ptr() for pool in held if isinstance(pool, torch.Tensor)}
    assert len(pools) == 1


def test_a_history_that_found_no_space_for_a_part_of_a_line_has_it_once(tmp_path: Path) -> None:
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
    refused: list[int | None] = []

    def writing(write: Callable[[], None]) -> None:
        if len(refused) < 2:
            resource.setrlimit(resource.RLIMIT_FSIZE, (50 + 500 * len(refused), unlimited[1]))
            try:
                with pytest.raises(OSError) as raised:
                    write()
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
            refused.append(raised.value.errno)
        write()

    simulation = open_simulation(manifest_of(sharing(1)), tmp_path, tmp_path / "run", writing=writing)
    for _ in simulation.run():
        continue
    assert set(refused) <= DISK_FULL_ERRNOS
    lines = (tmp_path / "run" / "history.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == simulation.history()
    assert len(lines) == 2


def test_the_result_is_that_of_any_run(tmp_path: Path) -> None:
    done = simulate(manifest_of(sharing(2)), tmp_path, tmp_path / "run")
    assert done.result is not None
    model = load_model(done.result.path)
    assert isinstance(model, Model)
    assert model.classifier.out_features == 10
    lines = (tmp_path / "run" / "history.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == done.history()
    again = simulate(manifest_of(sharing(2)), tmp_path, tmp_path / "run")
    assert again.result is not None and again.result.sha256 == done.result.sha256
    assert len((tmp_path / "run" / "history.jsonl").read_text().splitlines()) == 2
