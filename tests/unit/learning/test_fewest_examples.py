"""How many examples a round's steps see, and that what comes of too few is not sent."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fedsilo.api.silo import Silo
from fedsilo.errors import ManifestInvalid, PolicyRefused
from fedsilo.learning.training import LocalTraining, fit, learned_from
from fedsilo.methods.checks import check_training
from fedsilo.methods.interface import SiloTask
from fedsilo.methods.state import State
from fedsilo.silo.reply_limits import min_samples_per_update
from tests.federate import bound_method, job_spec, runners, skewed_silos
from tests.unit.learning.test_training import make_examples, make_model

PLAN = LocalTraining(lr=0.1, batch_size=4, min_examples=5)


@pytest.mark.parametrize(
    ("n", "plan"),
    [
        (24, {"min_steps": 2, "max_steps": 2}),
        (5, {"batch_size": 1}),
        (5, {}),
        (6, {"batch_size": 3, "min_steps": 5, "max_steps": 5}),
    ],
)
def test_steps_that_see_enough_examples_are_taken(n: int, plan: dict[str, Any]) -> None:
    fit(make_model(), make_examples(n), replace(PLAN, **plan))


@pytest.mark.parametrize(
    ("n", "plan", "said"),
    [
        (24, {"max_steps": 1}, "1 steps of 4 see 4 of 24"),
        (24, {"batch_size": 1, "min_steps": 4, "max_steps": 4}, "4 steps of 1 see 4 of 24"),
        (4, {"epochs": 50}, "50 steps of 4 see 4 of 4"),  # the same four again and again
        (4, {"batch_size": 1, "min_steps": 50}, "50 steps of 1 see 4 of 4"),
        (6, {"drop_last": True}, "1 steps of 4 see 4 of 6"),
    ],
)
def test_steps_that_see_too_few_examples_are_not(n: int, plan: dict[str, Any], said: str) -> None:
    model = make_model()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with pytest.raises(PolicyRefused, match=rf"{said}, fewer than minSamplesPerUpdate, 5"):
        fit(model, make_examples(n), replace(PLAN, **plan))
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())


@pytest.mark.parametrize(("steps", "seen"), [(1, 4), (2, 8), (3, 9), (4, 9), (7, 9)])
def test_an_example_counts_once_in_however_many_passes(steps: int, seen: int) -> None:
    plan = replace(PLAN, min_examples=1, min_steps=steps, max_steps=steps)
    assert int(learned_from(make_model(), make_examples(9), plan).sum()) == seen


def test_of_a_single_example_that_batch_norm_leaves_out_of_every_pass_nothing_is_learned() -> None:
    plan = replace(PLAN, min_examples=1, shuffle=False)
    seen = learned_from(make_model(batch_norm=True), make_examples(9), plan)
    assert seen.tolist() == [True] * 8 + [False]


REFUSED_PLANS = [
    ("fedavg", {}, {"localSteps": 4, "batchSize": 1}),
    ("fedavg", {}, {"localSteps": 1, "batchSize": 2, "gradientAccumulation": 2}),
    ("fedprox", {"stragglers": 0.5}, {"localSteps": 50, "batchSize": 4}),
    ("fedbr", {"variant": "released"}, {"localSteps": 50, "batchSize": 4}),
    ("fedrep", {}, {"localSteps": 2, "batchSize": 4}),
    ("map", {}, {"localSteps": 2, "batchSize": 4}),
    ("scamap", {}, {"localSteps": 2, "batchSize": 4}),
    ("groupdro", {}, {"batchSize": 4}),
    ("per-fedavg", {}, {"batchSize": 4}),
    ("ccvr", {"after": {"name": "fedavg"}}, {"localSteps": 1, "batchSize": 4}),
]
PERMITTED_PLANS = [
    ("fedavg", {}, {"localSteps": 5, "batchSize": 1}),
    ("fedavg", {}, {"localEpochs": 1, "batchSize": 1}),
    ("fedprox", {"stragglers": 0.5}, {"localEpochs": 2, "batchSize": 4}),
    ("fedprox", {}, {"localSteps": 2, "batchSize": 4}),
    ("fedbr", {}, {"localSteps": 2, "batchSize": 4}),
    ("fedrep", {"variant": "map"}, {"localSteps": 2, "batchSize": 4}),
    ("map", {"variant": "released"}, {"localSteps": 2, "batchSize": 4}),
    ("groupdro", {}, {"batchSize": 5}),
]


@pytest.mark.parametrize(("method", "config", "training"), REFUSED_PLANS)
def test_a_job_whose_update_may_follow_from_a_handful_is_refused(
    method: str, config: dict[str, Any], training: dict[str, Any]
) -> None:
    plan = {"rounds": 1, **training}
    found = check_training(
        bound_method(method, config=config, training=plan, privacy={"minSamplesPerClass": 5})
    )
    [(field, value, problem, remedy)] = found
    assert (field, value) == ("spec.training.batchSize", training["batchSize"])
    assert "fewer than 5" in problem and "larger batches" in remedy
    fewer = bound_method(method, config=config, training=plan, privacy={"minSamplesPerClass": 1})
    assert check_training(fewer) == []


@pytest.mark.parametrize(("method", "config", "training"), PERMITTED_PLANS)
def test_a_job_whose_update_follows_from_more_is_not(
    method: str, config: dict[str, Any], training: dict[str, Any]
) -> None:
    plan = {"rounds": 1, **training}
    assert not check_training(
        bound_method(method, config=config, training=plan, privacy={"minSamplesPerClass": 5})
    )


def test_a_silo_runs_no_such_job_and_sends_nothing_where_it_holds_too_few_itself(tmp_path: Path) -> None:
    silos, minimum = skewed_silos(tmp_path, {"a": [0]}, samples=4), {"minSamplesPerClass": 5}
    spec = job_spec("fedavg", ["a"], training={"rounds": 1, "localSteps": 1, "batchSize": 1}, privacy=minimum)
    with pytest.raises(ManifestInvalid, match="may follow from 1 example, fewer than"):
        runners(spec, silos, tmp_path)
    (silo,) = silos
    rules = silo.spec.policy.model_copy(update={"min_samples_per_update": 5})
    strict = silo.model_copy(update={"spec": silo.spec.model_copy(update={"policy": rules})})
    (runner,) = runners(job_spec("fedavg", ["a"]), [strict], tmp_path).values()
    task = SiloTask("train", "train", 1, 1, 1, {"model": runner.context.initial_model()}, {})
    with pytest.raises(PolicyRefused, match="see 4 of 4, fewer than minSamplesPerUpdate, 5"):
        runner.run(task, State())


@pytest.mark.parametrize(
    ("rules", "least"),
    [
        ({}, 5),
        ({"minSamplesPerClass": 2}, 2),
        ({"minSamplesPerClass": 100}, 5),  # who discloses no class may have a model trained all the same
        ({"minSamplesPerUpdate": 40}, 40),
        ({"minSamplesPerUpdate": 1}, 1),
    ],
)
def test_the_silos_minimum_is_5_unless_its_policy_says_otherwise(rules: dict[str, int], least: int) -> None:
    assert min_samples_per_update(silo_of(rules).spec.policy) == least


def silo_of(rules: dict[str, int]) -> Silo:
    content = {"datasets": [{"name": "data", "loader": "sklearn:digits"}], "policy": rules}
    return Silo.model_validate({"metadata": {"name": "north", "namespace": "silos"}, "spec": content})
