"""A silo half of somebody else's is run as a silo runs it, before a job is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typing_extensions import override

from fedsilo.engine.traffic import estimate_traffic
from fedsilo.errors import MethodError
from fedsilo.local.made_up_silo import MadeUpSilo
from fedsilo.methods.components.local import train_model
from fedsilo.methods.fedavg import FedAvg
from fedsilo.methods.interface import Reply, SiloContext, SiloStep, SiloTask
from fedsilo.methods.state import State
from tests.federate import job_spec, references


def train_counting(silo: SiloContext, task: SiloTask, private: State) -> Reply:
    before = private.trees.get("own", {}).get("rounds", np.zeros(1))
    after = before + 1
    assert after == task.round
    return replace(train_model(silo, task, private), private=State({"own": {"rounds": after}}))


def train_changing(silo: SiloContext, task: SiloTask, private: State) -> Reply:
    """Changes what it kept in place, which nothing permits."""
    reply = train_counting(silo, task, private)
    if task.round > 1:
        own: Any = private.trees["own"]
        own["rounds"] = np.ones(1)
    return reply


def rehearse(directory: Path, step: SiloStep, **sections: Any) -> MadeUpSilo:
    class Own(FedAvg):
        name = "own"

        @override
        def silo(self) -> Mapping[str, SiloStep]:
            return {"train": step}

    spec = job_spec("fedavg", 2, rounds=3, **sections)
    trial = MadeUpSilo(Own(spec, Own.Config()), references(spec)[0], directory)
    estimate_traffic(Own(spec, Own.Config()), references(spec), trial)
    return trial


def test_it_goes_on_from_what_it_kept_in_files(tmp_path: Path) -> None:
    trial = rehearse(tmp_path, train_counting, model={"parameters": {"local": ["classifier.*"]}})
    assert (trial.answered, trial.unsuited) == (3, None)


def test_one_that_fails_once_it_has_kept_something_is_named_with_its_place(tmp_path: Path) -> None:
    with pytest.raises(
        MethodError,
        match=r"step 'train' of method own fails in round 2 .*TypeError: .* at .*test_made_up_silo\.py:\d+",
    ):
        rehearse(tmp_path, train_changing)


def test_targets_that_nobody_can_make_up_are_said(tmp_path: Path) -> None:
    trial = rehearse(tmp_path, train_counting, task={"name": "multilabel"})
    assert (trial.answered, trial.unsuited) == (0, "targets cannot be made up")
