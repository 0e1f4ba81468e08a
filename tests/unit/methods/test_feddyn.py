"""FedDyn against the released codes: their rounds, and memories that agree at the aggregator and in the silos."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedsilo.errors import Problem
from fedsilo.learning.models import build_model, to_tree
from fedsilo.learning.seeding import derive_seed
from fedsilo.learning.training import cross_entropy_loss
from fedsilo.methods.interface import SiloTask
from fedsilo.methods.state import State, Tree
from fedsilo.wire import ModelSignature
from tests import reference_numbers
from tests.federate import (
    LocalSilo,
    bound_method,
    drive,
    job_spec,
    local_silos,
    model_of,
    open_engine,
    runners,
    skewed_silos,
)
from tests.reference_numbers.networks import fixture_tree
from tests.tiers import mark_thorough
from tests.unit.methods.harness import (
    IDENTITY,
    ROUND,
    answers,
    assert_close,
    run_recorded_job,
    server_context,
)

CLASSES = {"a": [0, 1], "b": [2, 3], "c": [1, 2]}
ROUNDS = [1, 2, 3]


def flat_vector(tree: Tree) -> np.ndarray:
    return np.concatenate([array.ravel() for array in tree.values()])


@pytest.mark.parametrize("rounds", ROUNDS)
def test_every_round_is_that_of_the_authors_code(tmp_path: Path, rounds: int) -> None:
    """What is sent next, and what each client keeps, whether or not it was selected."""
    npz = reference_numbers.load("feddynrepo_feddyn_partial")
    config = {"variant": "released", "alpha": float(npz["hp/alpha_coef"])}
    engine, silos = run_recorded_job(tmp_path, "feddyn", "feddynrepo_feddyn_partial", rounds, config)
    assert_close(model_of(engine), fixture_tree(npz, f"round{rounds}/cloud/"))
    kept = npz[f"round{rounds}/local_param_list"]
    for silo, expected in zip(silos, kept, strict=True):
        found = (
            flat_vector(silo.private_state.tree("memory"))
            if "memory" in silo.private_state.trees
            else 0 * expected
        )
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=2e-6)
    np.testing.assert_allclose(
        flat_vector(engine.state.tree("memory")), kept.mean(axis=0), rtol=1e-4, atol=2e-6
    )


@pytest.mark.parametrize("rounds", ROUNDS)
def test_every_round_is_that_of_maps_code(tmp_path: Path, rounds: int) -> None:
    npz = reference_numbers.load("map_feddyn")
    config = {"variant": "map", "alpha": float(npz["arg/reg_lamb"])}
    engine, silos = run_recorded_job(tmp_path, "feddyn", "map_feddyn", rounds, config, aggregation={})
    assert_close(model_of(engine), fixture_tree(npz, f"round{rounds}/g/"))
    for k, silo in enumerate(silos):
        for name, expected in fixture_tree(npz, f"round{rounds}/h/{k}/").items():
            np.testing.assert_allclose(
                silo.private_state.tree("memory")[name], expected, rtol=1e-3, atol=2e-6
            )


def test_maps_server_moves_by_the_part_of_the_silos_that_is_drawn() -> None:
    method = bound_method("feddyn", silos=4, config={"variant": "map"}, participation={"fraction": 0.5})
    job = server_context(method.spec, ModelSignature((), 4, 5))
    sent = {"silos/s0": {"model": {"w": np.full(2, 3.0)}}, "silos/s1": {"model": {"w": np.full(2, 5.0)}}}
    state = State({"model": {"w": np.zeros(2)}})
    state = method.server().aggregate(job, state, ROUND, answers(sent))
    np.testing.assert_allclose(state.tree("model")["w"], 2.0)
    assert state.trees.keys() == {"model"}


def open_job(tmp_path: Path, rounds: int, **sections: Any) -> tuple[Any, list[LocalSilo]]:
    plan = {"rounds": rounds, "device": "cpu", "minSteps": 4, "optimizer": {"learningRate": 0.1}}
    training = {**plan, **sections.pop("training", {})}
    spec = job_spec("feddyn", list(CLASSES), rounds, training=training, **sections)
    silos = local_silos(tmp_path, runners(spec, skewed_silos(tmp_path, CLASSES), tmp_path))
    return open_engine(tmp_path / "aggregator", spec), silos


def mean_memory(silos: list[LocalSilo]) -> np.ndarray:
    """Mean of the memories over all silos; one that never took part remembers nothing."""
    known = [
        flat_vector(silo.private_state.tree("memory"))
        for silo in silos
        if "memory" in silo.private_state.trees
    ]
    return np.asarray(np.sum(known, axis=0) / len(silos))


@pytest.mark.parametrize("variant", ["paper", "released"])
@pytest.mark.parametrize("weights", mark_thorough(["uniform", "samples"], {"samples"}))
def test_the_aggregators_memory_is_the_mean_of_all_silos_whoever_took_part(
    tmp_path: Path, variant: str, weights: str
) -> None:
    method = {"config": {"variant": variant, "alpha": 0.1}}
    sections = {"participation": {"fraction": 0.6}, "aggregation": {"weights": weights}}
    engine, silos = open_job(tmp_path, 4, method=method, **sections)
    drive(engine, silos)
    assert engine.failure is None
    assert any(len(line["samples"]) == 2 for line in engine.history())
    found = mean_memory(silos)
    np.testing.assert_allclose(flat_vector(engine.state.tree("memory")), found, rtol=1e-4, atol=1e-6)
    assert np.abs(found).max() > 1e-3


def test_an_update_that_came_too_late_grows_neither_memory(tmp_path: Path) -> None:
    engine, silos = open_job(tmp_path, 3, participation={"minSilos": 1, "roundDeadline": "10s"})
    late, *others = silos
    for silo in others:
        silo.answer(engine)
    sealed = engine.task(late.reference)
    assert sealed is not None
    update = late.sign(engine, sealed.contract, sealed.sealed)
    engine.wait(10)
    with pytest.raises(Problem, match="round-closed"):
        late.send(engine, sealed.id, update)
    engine.settle()
    assert "memory" not in late.private_state.trees
    np.testing.assert_allclose(
        flat_vector(engine.state.tree("memory")), mean_memory(silos), rtol=1e-4, atol=1e-6
    )
    drive(engine, silos)
    assert engine.failure is None
    assert "memory" in late.private_state.trees
    np.testing.assert_allclose(
        flat_vector(engine.state.tree("memory")), mean_memory(silos), rtol=1e-4, atol=1e-6
    )


def test_at_a_silos_optimum_its_gradient_is_alpha_times_what_it_remembers(tmp_path: Path) -> None:
    """The reason for memories, Algorithm 1: minus alpha h_k is the gradient of the silo's own risk there."""
    alpha = 0.5
    training = {"optimizer": {"learningRate": 0.5, "momentum": 0}, "minSteps": 200, "batchSize": 64}
    sections: dict[str, Any] = {
        "model": {"name": IDENTITY, "config": {}},
        "method": {"config": {"alpha": alpha}},
    }
    engine, silos = open_job(tmp_path, 1, training=training, **sections)
    drive(engine, silos)
    assert engine.failure is None
    spec = job_spec("feddyn", list(CLASSES), 1, **sections)
    w = to_tree(build_model(spec.model, spec.data, derive_seed(spec.training.seed, "model")))
    answering = runners(spec, skewed_silos(tmp_path, CLASSES), tmp_path)
    for silo, runner in zip(silos, answering.values(), strict=True):
        memory, examples = silo.private_state.tree("memory"), runner.context.train
        theta = runner.context.model({name: w[name] + memory[name] for name in w})
        risk = cross_entropy_loss(theta, *examples.batch(torch.arange(len(examples))))
        for name, parameter in theta.named_parameters():
            (gradient,) = torch.autograd.grad(risk, [parameter], retain_graph=True)
            np.testing.assert_allclose(gradient.numpy(), -alpha * memory[name], atol=1e-5)


@pytest.mark.parametrize("variant", ["paper", "released", "map"])
def test_the_released_pull_to_zero_is_weight_decay_and_not_clipped(tmp_path: Path, variant: str) -> None:
    """One step of a silo that remembers h, by autograd."""
    alpha, rate, limit = 0.5, 0.1, 0.05
    training = {
        "rounds": 1,
        "device": "cpu",
        "batchSize": 64,
        "gradientClip": limit,
        "optimizer": {"learningRate": rate, "momentum": 0},
    }
    spec = job_spec(
        "feddyn", ["a"], 1, method={"config": {"variant": variant, "alpha": alpha}}, training=training
    )
    (runner,) = runners(spec, skewed_silos(tmp_path, {"a": [0, 1]}), tmp_path).values()
    w = runner.context.initial_model()
    rng = np.random.default_rng(0)
    memory = {name: rng.normal(size=array.shape).astype(np.float32) for name, array in w.items()}
    task = SiloTask("train", "train", 1, 1, 1, {"model": w}, {"share": 1.0})
    sent = runner.run(task, State({"memory": memory})).tensors

    module, examples = runner.context.model(w), runner.context.train
    risk = cross_entropy_loss(module, *examples.batch(torch.arange(len(examples))))
    gradients = torch.autograd.grad(risk, list(module.parameters()))
    raw = {name: array.numpy() for name, array in zip(w, gradients, strict=True)}
    scale = alpha / len(w) if variant == "map" else alpha
    pull = 2.0 if variant == "map" else 1.0
    linear = {name: raw[name] + scale * (memory[name] - w[name]) for name in w}
    decay = {name: scale * pull * w[name] for name in w}
    if variant == "released":
        short = limit / np.linalg.norm(flat_vector(linear))
        wanted = {name: w[name] - rate * (short * linear[name] + decay[name]) for name in w}
    else:
        whole = {name: linear[name] + decay[name] for name in w}
        wanted = {
            name: w[name] - rate * limit / np.linalg.norm(flat_vector(whole)) * whole[name] for name in w
        }
    assert_close(sent, wanted)
