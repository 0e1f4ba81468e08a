"""What a silo states beside its tensors: figures that no training as the job says gives are refused on arrival."""

from __future__ import annotations

from typing import Any

import pytest

from fedsilo.errors import Problem
from fedsilo.methods.groupdro import FIRST_LOSS
from fedsilo.transforms.plan import JobPlan
from fedsilo.wire import Contract, ModelSignature
from tests.federate import bound_method

SIGNATURE = ModelSignature((), 4, 5)
STEPPING = ["scaffold", "scars", "scamap", "fedcm", "fednova"]
NOVA = {"normalizer": 1.0}


def contract_of(method: str, step: str = "train", /, **training: Any) -> Contract:
    config = {"variant": "feddyn"} if (method, step) == ("scaffold", "sizes") else {}
    if (method, step) == ("feddyn", "sizes"):
        config = {"variant": "released"}
    job = bound_method(method, config=config, training={"rounds": 1, **training})
    return JobPlan(job).contract(step, SIGNATURE, {})


def refusal_text(contract: Contract, figures: dict[str, float], samples: int = 24) -> str:
    """The code of the refusal, and what is said; nothing where there is none."""
    try:
        contract.check([], figures, samples)
    except Problem as problem:
        return str(problem)
    return ""


@pytest.mark.parametrize("method", STEPPING)
@pytest.mark.parametrize(
    ("training", "most"),
    [
        ({"localSteps": 50}, 50),
        ({"localEpochs": 3, "batchSize": 8}, 9),
        ({"localEpochs": 3, "batchSize": 7}, 12),
        ({"localEpochs": 3, "batchSize": 4, "gradientAccumulation": 2}, 9),
        ({"localEpochs": 3, "batchSize": 8, "minSteps": 20}, 20),
    ],
)
def test_a_silo_takes_no_more_steps_than_the_plan_has_for_its_samples(
    method: str, training: dict[str, int], most: int
) -> None:
    contract = contract_of(method, **training)
    for steps in (1.0, float(most)):
        assert (
            refusal_text(contract, {"loss": 0.5, "steps": steps, **(NOVA if method == "fednova" else {})})
            == ""
        )
    for steps in (0.0, -1.0, most + 1, 1e12):
        said = refusal_text(contract, {"loss": 0.5, "steps": steps, **(NOVA if method == "fednova" else {})})
        assert said.startswith(f"out-of-range: metric steps: is {steps:g}; must be from 1 to {most}")


@pytest.mark.parametrize("method", STEPPING)
def test_an_update_that_leaves_out_its_steps_is_refused(method: str) -> None:
    assert refusal_text(contract_of(method), {"loss": 0.5, **(NOVA if method == "fednova" else {})}) == (
        "missing-metric: metric steps: required by the contract; send it"
    )


@pytest.mark.parametrize(("momentum", "most"), [(0.0, 10.0), (0.5, 20.0), (0.9, 100.0)])
def test_a_k_is_at_most_that_of_all_momentum_in_each_step(momentum: float, most: float) -> None:
    contract = contract_of("fednova", localSteps=10, optimizer={"momentum": momentum})
    for a in (1.0, most):
        assert refusal_text(contract, {"steps": 10.0, "normalizer": a}) == ""
    for a in (0.5, 1.01 * most, 1e12):
        assert refusal_text(contract, {"steps": 10.0, "normalizer": a}).startswith(
            "out-of-range: metric normalizer"
        )
    assert refusal_text(contract, {"steps": 10.0}).startswith("missing-metric: metric normalizer")


def test_a_first_loss_wins_no_more_than_a_class_without_probability_does() -> None:
    contract = contract_of("groupdro")
    for loss in (0.0, 1.4, 103.0):
        assert refusal_text(contract, {FIRST_LOSS: loss}) == ""
    for loss in (-0.1, 104.0, 1e100):
        assert refusal_text(contract, {FIRST_LOSS: loss}).startswith("out-of-range: metric first_loss")
    assert refusal_text(contract, {"loss": 0.5}).startswith("missing-metric: metric first_loss")


@pytest.mark.parametrize("method", ["feddyn", "scaffold"])
def test_a_size_is_from_1_to_the_largest_that_is_told_from_the_next(method: str) -> None:
    contract = contract_of(method, "sizes")
    for samples in (1, 2**53):
        assert refusal_text(contract, {}, samples) == ""
    for samples in (0, 2**53 + 1, 2**63 - 1):
        assert refusal_text(contract, {}, samples).startswith("out-of-range: samples: is")
