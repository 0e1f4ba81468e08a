"""GroupDRO's weights against the released code, and the loss that they follow."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedsilo.learning.models import build_model, to_tree
from fedsilo.learning.training import cross_entropy_loss
from fedsilo.methods.components.mixing import mixup_loss
from fedsilo.methods.groupdro import FIRST_LOSS, LARGEST_LOSS, LOG_WEIGHTS
from fedsilo.methods.interface import SiloTask
from fedsilo.methods.reading import Updates
from fedsilo.methods.state import State
from fedsilo.simulation.silos import SimulatedUpdate
from fedsilo.transforms.plan import JobPlan
from fedsilo.updates.held import InMemoryUpdates
from fedsilo.wire import ModelSignature
from tests import reference_numbers
from tests.federate import bound_method, federate, job_spec, model_of, runners, skewed_silos
from tests.unit.methods.harness import MODEL, ROUND, server_context

SILOS = ("silos/s0", "silos/s1", "silos/s2")


def answered_updates(losses: dict[str, float]) -> Updates:
    """A silo's model is the number of its name."""
    sent = {silo: {"model": {"w": np.array([float(silo[-1])], np.float32)}} for silo in losses}
    held = {
        silo: SimulatedUpdate(1, {FIRST_LOSS: losses[silo]}, blocks, None) for silo, blocks in sent.items()
    }
    return Updates(InMemoryUpdates(held), "uniform", MODEL)


def test_weights_and_means_are_those_of_the_released_code() -> None:
    npz = reference_numbers.load("groupdro_weights")
    method = bound_method("groupdro", silos=3, config={"eta": float(npz["eta"])})
    job, half = server_context(method.spec, ModelSignature((), 4, 5)), method.server()
    state = half.start(server_context(method.spec, ModelSignature((), 4, 5)))
    for losses, p in zip(npz["first_losses"], npz["p_after_round"], strict=True):
        state = half.aggregate(
            job, state, ROUND, answered_updates(dict(zip(SILOS, losses.tolist(), strict=True)))
        )
        logs = state.in_memory().values[LOG_WEIGHTS]
        np.testing.assert_allclose(np.exp([logs[silo] for silo in SILOS]), p, rtol=1e-8)
        np.testing.assert_allclose(state.tree("model")["w"], [(p @ [0, 1, 2]) / p.sum()], rtol=1e-6)


def test_a_silo_that_was_not_drawn_keeps_its_weight_and_no_weight_is_too_large() -> None:
    method = bound_method("groupdro", silos=3, config={"eta": 100})
    job, half = server_context(method.spec, ModelSignature((), 4, 5)), method.server()
    state = State({}, {LOG_WEIGHTS: {}})
    state = half.aggregate(job, state, ROUND, answered_updates({SILOS[0]: 0.02, SILOS[2]: 100.0}))
    assert state.values[LOG_WEIGHTS] == {SILOS[0]: 2.0, SILOS[2]: 10000.0}
    np.testing.assert_array_equal(state.tree("model")["w"], [2])
    state = half.aggregate(job, state, ROUND, answered_updates({SILOS[0]: -0.01, SILOS[1]: 0.01}))
    np.testing.assert_allclose(state.tree("model")["w"], [0.5])


@pytest.mark.parametrize("variant", ["paper", "released"])
@pytest.mark.parametrize("accumulation", [None, 3])
def test_what_a_silo_reports_is_the_loss_of_its_first_step(
    tmp_path: Path, variant: str, accumulation: int | None
) -> None:
    """The loss is that of whole batches, also where a batch is computed in parts."""
    training = {"rounds": 1, "device": "cpu", "batchSize": 4, "gradientAccumulation": accumulation}
    if variant == "released" and accumulation:
        training |= {
            "batchSize": 12,
            "gradientAccumulation": None,
        }  # examples of a part are mixed with each other
    spec = job_spec("groupdro", ["a"], method={"config": {"variant": variant}}, training=training)
    (runner,) = runners(spec, skewed_silos(tmp_path, {"a": [0, 1]}), tmp_path).values()
    runner.context = replace(runner.context, shuffle=False)
    model = build_model(spec.model, spec.data, seed=3)
    task = SiloTask("train", "train", 1, 1, 1, {"model": to_tree(model)}, {})
    own = cross_entropy_loss if variant == "paper" else mixup_loss(runner.context, task, 0.2)
    x, y = runner.context.train.batch(torch.arange(12 if accumulation else 4))
    wanted = own(model, x, y).item()
    assert runner.run(task, State()).metrics[FIRST_LOSS] == pytest.approx(wanted, rel=1e-5)


def test_of_a_loss_beyond_all_probability_a_silo_reports_the_limit(tmp_path: Path) -> None:
    spec = job_spec("groupdro", ["a"])
    (runner,) = runners(spec, skewed_silos(tmp_path, {"a": [0, 1]}), tmp_path).values()
    wrong = to_tree(build_model(spec.model, spec.data, seed=3))
    wrong["classifier.bias"] = np.array([-500, -500, 0, 0], np.float32)
    reply = runner.run(SiloTask("train", "train", 1, 1, 1, {"model": wrong}, {}), State())
    assert reply.metrics[FIRST_LOSS] == LARGEST_LOSS < reply.metrics["loss"]
    contract = JobPlan(runner.method).contract("train", runner.context.signature, {})
    assert contract.ranges[FIRST_LOSS] == (0.0, LARGEST_LOSS)


def trained_model(tmp_path: Path, method: str, config: dict[str, Any] | None = None) -> dict[str, np.ndarray]:
    silos = skewed_silos(tmp_path, {"a": [0, 1], "b": [2, 3]})
    uniform = {"weights": "uniform"}
    spec = job_spec(method, ["a", "b"], 2, method={"config": config or {}}, aggregation=uniform)
    directory = tmp_path / str(len(list(tmp_path.iterdir())))
    return model_of(federate(directory, spec, runners(spec, silos, tmp_path)))


def test_without_steps_of_the_weights_it_is_uniform_averaging(tmp_path: Path) -> None:
    fedavg = trained_model(tmp_path, "fedavg")
    mixup = trained_model(tmp_path, "mixup")
    released = trained_model(tmp_path, "groupdro", {"eta": 0, "variant": "released"})
    for name, array in trained_model(tmp_path, "groupdro", {"eta": 0}).items():
        np.testing.assert_array_equal(fedavg[name], array)
        np.testing.assert_array_equal(mixup[name], released[name])


def test_weights_by_samples_are_refused() -> None:
    (fault,) = bound_method("groupdro", aggregation={"weights": "samples"}).check()
    assert fault[:2] == ("spec.aggregation.weights", "samples") and fault[3] == "remove it, or write uniform"
    assert bound_method("groupdro", aggregation={"weights": "uniform"}).check() == []
