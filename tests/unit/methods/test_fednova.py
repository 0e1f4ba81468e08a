"""FedNova against the released codes: their steps and rounds, and what a_k must be."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedsilo.learning.training import LocalTraining
from fedsilo.methods.fednova.silo import normalizer, released_normalizer
from fedsilo.methods.interface import SiloContext
from fedsilo.methods.reading import Updates
from fedsilo.methods.state import State, Tree
from fedsilo.transforms.conflicts import conflicts_of
from fedsilo.transforms.plan import JobPlan
from fedsilo.wire import ModelSignature
from tests import reference_numbers
from tests.federate import bound_method, federate, job_spec, model_of, runners, skewed_silos
from tests.reference_numbers.networks import fixture_tree
from tests.unit.methods.harness import (
    COMPARED_ROUNDS,
    MODEL,
    ROUND,
    Point,
    accepted_updates,
    answers,
    as_recorded,
    assert_close,
    server_context,
    steps_of_point,
)


def quadratic(context: SiloContext) -> Any:
    """The loss of the recorded problem: its gradient is H w + b, whatever the batch."""
    npz = reference_numbers.load("fednova_optimizer")
    h, b = torch.tensor(npz["H"]), torch.tensor(npz["b"])

    def loss(model: Point, features: Tensor, labels: Tensor) -> Tensor:
        return (h * model.w.square() / 2 + b * model.w).sum()

    return loss


SIGNATURE = ModelSignature((), 4, 5)

RHO, MU, DECAY = 0.9, 0.3, 0.01
"""Momentum, weight of the proximal term and weight decay of the recorded runs."""

STEPS = [
    ("plain", 0.0, 0.0, 0.0),
    ("momentum", RHO, 0.0, 0.0),
    ("prox", 0.0, MU, 0.0),
    ("momprox", RHO, MU, 0.0),
    ("wd", RHO, 0.0, DECAY),
]


@pytest.mark.parametrize("variant", ["paper", "released"])
@pytest.mark.parametrize(("name", "momentum", "mu", "decay"), STEPS)
def test_a_silos_steps_and_what_they_count_for_are_those_of_the_released_code(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    momentum: float,
    mu: float,
    decay: float,
    variant: str,
) -> None:
    monkeypatch.setattr(SiloContext, "loss", quadratic)
    npz = reference_numbers.load("fednova_optimizer")
    optimizer = {"learningRate": float(npz["lr"]), "momentum": momentum, "weightDecay": decay}
    trees: dict[str, Tree] = {"model": {"w": npz["w0"]}}
    config = {"mu": mu, "variant": variant}
    reply = steps_of_point(tmp_path, "fednova", int(npz["steps"]), optimizer, trees, config)
    assert_close(reply.tensors, {"w": npz[f"{name}/w"]})
    assert reply.metrics["steps"] == npz[f"{name}/tau"]
    if (name, variant) != ("momprox", "paper"):  # where that counts every gradient twice
        assert reply.metrics["normalizer"] == pytest.approx(float(npz[f"{name}/a"]), rel=2e-5)


RECORDED_RUNS: list[tuple[str, dict[str, Any], str]] = [
    ("niid_fednova", {}, "round{}/"),
    ("map_fednova", {}, "round{}/g/"),
]


@pytest.mark.parametrize("rounds", COMPARED_ROUNDS)
@pytest.mark.parametrize(("fixture", "config", "prefix"), RECORDED_RUNS)
def test_every_round_is_that_of_the_released_codes(
    tmp_path: Path, fixture: str, config: dict[str, Any], prefix: str, rounds: int
) -> None:
    """NIID-Bench's silos take 4 to 10 steps, by samples; MAP's 5 each, uniform."""
    engine = as_recorded(tmp_path, "fednova", fixture, rounds, config)
    assert_close(model_of(engine), fixture_tree(reference_numbers.load(fixture), prefix.format(rounds)))


PULLS = [(0.0, 0.0, False), (0.9, 0.0, False), (0.9, 0.0, True), (0.0, 0.03, False), (0.5, 0.03, True)]


@pytest.mark.parametrize(("momentum", "pull", "nesterov"), PULLS)
def test_a_k_is_how_far_steps_along_a_gradient_of_one_lead(
    momentum: float, pull: float, nesterov: bool
) -> None:
    """PyTorch's SGD on a line, from 0, whose gradient is 1 and the pull to 0; nothing in it swings back."""
    w = nn.Parameter(torch.zeros(1, dtype=torch.float64))
    sgd = torch.optim.SGD([w], lr=1.0, momentum=momentum, nesterov=nesterov)
    for taken in range(1, 8):
        w.grad = 1 + pull * w.detach()
        sgd.step()
        plan = LocalTraining(lr=1.0, momentum=momentum, nesterov=nesterov)
        assert normalizer(taken, plan, pull) == pytest.approx(-w.item())
        if not (momentum and pull):
            assert released_normalizer(taken, plan, pull) == normalizer(taken, plan, pull)


@pytest.mark.parametrize("pull", [0.1, 0.5, 0.99])
def test_where_steps_swing_back_what_gradients_count_for_does_not_cancel(pull: float) -> None:
    plan = LocalTraining(lr=1.0, momentum=0.99)
    found = [normalizer(steps, plan, pull) for steps in range(1, 50)]
    assert found[0] == 1
    assert all(after > before for before, after in pairwise(found))


def test_silos_with_more_steps_do_not_count_for_more() -> None:
    """Two silos whose gradients are constant: w moves by tau_eff times the mean gradient, however they step."""
    rate, momentum = 0.1, 0.5
    plan = LocalTraining(lr=rate, momentum=momentum)
    gradients = {"silos/s0": np.array([1.0, 0.0]), "silos/s1": np.array([0.0, 1.0])}
    a = {"silos/s0": normalizer(2, plan, 0), "silos/s1": normalizer(20, plan, 0)}
    w = np.array([3.0, 4.0])
    method = bound_method("fednova")
    job = server_context(method.spec, SIGNATURE)
    updates = accepted_updates(
        {silo: {"model": {"w": w - rate * a[silo] * g}} for silo, g in gradients.items()}
    )
    for silo, update in updates._updates.items():
        object.__setattr__(update, "metrics", {"steps": 2.0, "normalizer": a[silo]})
    state = method.server().aggregate(
        job, State({"model": {"w": w}}), ROUND, Updates(updates, "samples", MODEL)
    )
    effective = (a["silos/s0"] + a["silos/s1"]) / 2
    np.testing.assert_allclose(state.tree("model")["w"], w - rate * effective * 0.5, rtol=1e-6)


def test_with_a_proximal_term_the_server_moves_by_the_mean_number_of_steps() -> None:
    method = bound_method("fednova", config={"mu": 0.1, "serverMomentum": 0.5})
    job = server_context(method.spec, SIGNATURE)
    state = State({"model": {"w": np.zeros(1)}, "velocity": {"w": np.zeros(1)}})
    sent = {f"silos/s{k}": {"model": {"w": np.full(1, 2.0)}} for k in range(2)}
    for expected in (2 * 6 / 4, 2 * 6 / 4 + 0.5 * 2 * 6 / 4 + (2 - 2 * 6 / 4) * 6 / 4):
        state = method.server().aggregate(job, state, ROUND, answers(sent, steps=6, normalizer=4))
        np.testing.assert_allclose(state.tree("model")["w"], expected)


@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize("momentum", [0.0, 0.3, 0.9, 0.99])
@pytest.mark.parametrize("pull", [0.0, 0.01, 0.5, 0.99])
def test_no_silo_that_trains_as_the_job_says_is_refused(nesterov: bool, momentum: float, pull: float) -> None:
    plan = LocalTraining(lr=1.0, momentum=momentum, nesterov=nesterov)
    training = {"optimizer": {"learningRate": 1, "momentum": momentum}, "rounds": 1, "localSteps": 999}
    for variant, count in (("paper", normalizer), ("released", released_normalizer)):
        job = bound_method("fednova", config={"variant": variant, "mu": pull}, training=training)
        contract = JobPlan(job).contract("train", SIGNATURE, {})
        for steps in (1, 2, 3, 10, 999):
            figures = {"loss": 0.5, "steps": float(steps), "normalizer": count(steps, plan, pull)}
            contract.check([], figures, 24)


def test_jobs_whose_steps_overshoot_or_whose_momentum_is_older_than_the_round_are_refused() -> None:
    training = {"rounds": 1, "optimizer": {"learningRate": 0.1, "state": "keep"}}
    job = bound_method("fednova", config={"mu": 10}, training=training)
    faults = [*job.check(), *conflicts_of(job)]
    assert [fault[0] for fault in faults] == ["spec.method.config.mu", "spec.training.optimizer.state"]
    assert (
        bound_method("fednova", config={"mu": 9.9}, training={"optimizer": {"learningRate": 0.1}}).check()
        == []
    )


def test_with_as_many_steps_in_each_silo_it_is_fedavg(tmp_path: Path) -> None:
    silos = skewed_silos(tmp_path, {"a": [0, 1], "b": [2, 3]})
    found = []
    for method in ("fedavg", "fednova"):
        spec = job_spec(method, ["a", "b"], 2)
        found.append(model_of(federate(tmp_path / method, spec, runners(spec, silos, tmp_path))))
    for name, array in found[0].items():
        np.testing.assert_allclose(found[1][name], array, rtol=1e-4, atol=1e-6)
