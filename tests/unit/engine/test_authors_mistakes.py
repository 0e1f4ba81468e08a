"""What an author of a method may get wrong is said as the method's error, in the words of what the author writes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from typing_extensions import override

from fedsilo.api.faults import ManifestFaults
from fedsilo.errors import MethodError
from fedsilo.methods import registry
from fedsilo.methods.fedavg import FedAvg, FedAvgServer
from fedsilo.methods.interface import (
    Exchange,
    Reply,
    ServerContext,
    ServerHalf,
    SiloContext,
    SiloStep,
    SiloTask,
)
from fedsilo.methods.reading import Mean
from fedsilo.methods.state import State
from fedsilo.silo.context import open_context
from fedsilo.silo.runner import TaskRunner
from fedsilo.validation import load_manifest
from tests.federate import federate, job_spec, skewed_silos
from tests.paths import ROOT
from tests.unit.engine.synthetic import synthetic_runners

SPEC = job_spec("fedavg", 2)


class NoAggregateMethod(FedAvg):
    """An `aggregate` that forgets to return."""

    @override
    def server(self) -> ServerHalf[Mean]:
        class Half(FedAvgServer):
            @override
            def aggregate(self, job: ServerContext, state: State, exchange: Exchange, mean: Mean) -> State:
                return cast(State, None)

        return Half()


def test_an_aggregate_that_returns_no_state_is_the_methods_error(tmp_path: Path) -> None:
    problem = "aggregate of method fedavg returned NoneType; return the State after the exchange"
    with pytest.raises(MethodError, match=problem):
        federate(tmp_path, SPEC, synthetic_runners(SPEC), method=NoAggregateMethod)


@pytest.mark.parametrize(
    ("private", "problem"),
    [
        ({"rounds": 1}, "Reply.private is a dict; keep a State, or None"),
        (
            State({"own": {"w": cast(Any, torch.zeros(2))}}),
            "own/w of Reply.private is Tensor; keep NumPy arrays",
        ),
        (State({"own": {"w": np.array(["a"])}}), "own/w of Reply.private is <U1; keep NumPy arrays"),
    ],
    ids=["dict", "tensor", "texts"],
)
def test_a_silo_half_that_keeps_no_state_is_told_what_to_keep(
    tmp_path: Path, private: Any, problem: str
) -> None:
    class Keeping(FedAvg):
        """A silo half that keeps this."""

        @override
        def silo(self) -> Mapping[str, SiloStep]:
            def step(silo: SiloContext, task: SiloTask, kept: State) -> Reply:
                return Reply(private=private)

            return {"train": step}

    (silo,) = skewed_silos(tmp_path, {"a": [0, 1]})
    method = registry.bind(job_spec("fedavg", ["a"]))
    runner = TaskRunner(Keeping(method.spec, method.config), open_context(method.spec, silo, tmp_path))
    with pytest.raises(MethodError, match=f"step 'train' of method fedavg: {re.escape(problem)}"):
        runner.run(SiloTask("train", "train", 1, 1, 1, {"model": {}}, {}), State())


def test_a_declaration_that_fails_is_found_by_validation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: Any) -> Any:
        raise AttributeError("'MethodConfig' object has no attribute 'send'")

    monkeypatch.setattr(FedAvg, "steps", failing)
    problem = "the declaration of method fedavg failed: AttributeError: 'MethodConfig' object has no attribute 'send'"
    with pytest.raises(
        ManifestFaults, match=f"spec.method.name: .*{re.escape(problem)}; mend or remove the package"
    ):
        load_manifest(ROOT / "examples" / "private.yaml")
