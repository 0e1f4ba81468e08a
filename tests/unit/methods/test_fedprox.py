"""FedProx and clsprox against released numbers, and what the proximal term must do."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fedsilo.api.job import FederatedJobSpec
from fedsilo.errors import MethodError, SiloFailed
from fedsilo.learning.models import Model, build_model, to_tree
from fedsilo.learning.seeding import derive_seed
from fedsilo.learning.training import cross_entropy_loss
from fedsilo.methods import registry
from fedsilo.methods.components.proximal import proximal_loss
from fedsilo.methods.interface import Exchange, Phase, SiloContext, SiloTask
from fedsilo.methods.state import State, Tree
from fedsilo.wire import ModelSignature
from tests import reference_numbers
from tests.federate import bound_method, federate, job_spec, model_of, references, runners, skewed_silos
from tests.reference_numbers.networks import fixture_tree
from tests.unit.methods.harness import (
    COMPARED_ROUNDS,
    as_recorded,
    assert_close,
    bowl,
    server_context,
    steps_of_point,
)

RECORDED_RUNS = [
    ("niid_fedprox", "hp/mu", "paper", "round{}/"),
    ("feddynrepo_fedprox_partial", "hp/mu", "paper", "round{}/sel/"),
    ("map_fedprox", "arg/reg_lamb", "released", "round{}/g/"),
]


@pytest.mark.parametrize("rounds", COMPARED_ROUNDS)
@pytest.mark.parametrize(("fixture", "mu", "variant", "prefix"), RECORDED_RUNS)
def test_every_round_is_that_of_the_released_code(
    tmp_path: Path, fixture: str, mu: str, variant: str, prefix: str, rounds: int
) -> None:
    """Means are by the variant's own rule."""
    npz = reference_numbers.load(fixture)
    config = {"mu": float(npz[mu]), "variant": variant}
    engine = as_recorded(tmp_path, "fedprox", fixture, rounds, config, aggregation={})
    assert_close(model_of(engine), fixture_tree(npz, prefix.format(rounds)))


@pytest.mark.parametrize("steps", [1, 2, 3, 4])
def test_steps_are_those_of_fedbrs_optimizer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    monkeypatch.setattr(SiloContext, "loss", bowl)
    npz = reference_numbers.load("fedbr_opt_fedprox")
    optimizer = {"learningRate": float(npz["lr"]), "momentum": float(npz["momentum"])}
    trees: dict[str, Tree] = {"model": {"w": npz["w0"].astype(np.float32)}}
    reply = steps_of_point(tmp_path, "fedprox", steps, optimizer, trees, {"mu": float(npz["mu_arg"])})
    assert_close(reply.tensors, {"w": npz["traj"][steps - 1]})


@pytest.mark.parametrize("part", ["", "classifier."])
def test_its_gradient_is_mu_times_the_way_from_the_start(tmp_path: Path, part: str) -> None:
    (silo,) = runners(job_spec("fedprox", ["a"]), skewed_silos(tmp_path, {"a": [0, 1]}), tmp_path).values()
    model = Model(nn.Linear(6, 5), nn.Linear(5, 4))
    start = {name: array + 1 for name, array in to_tree(model).items()}
    x, y = silo.context.train.batch(torch.arange(8))

    def gradients(loss: torch.Tensor) -> list[torch.Tensor]:
        return list(torch.autograd.grad(loss, list(model.parameters())))

    plain = gradients(cross_entropy_loss(model, x, y))
    pulled = gradients(proximal_loss(silo.context, start, 0.3, part=part)(model, x, y))
    for (name, w), before, after in zip(model.named_parameters(), plain, pulled, strict=True):
        pull = 0.3 * (w.detach() - torch.tensor(start[name])) if name.startswith(part) else 0 * w
        torch.testing.assert_close(after, before + pull, rtol=1e-4, atol=1e-5)


def trained_model(tmp_path: Path, method: str, config: dict[str, Any] | None = None) -> Tree:
    silos = skewed_silos(tmp_path, {"a": [0, 1], "b": [2, 3]})
    # Several steps: the first is taken where the term has no gradient yet.
    training = {
        "rounds": 2,
        "device": "cpu",
        "minSteps": 6,
        "optimizer": {"learningRate": 0.1, "momentum": 0},
    }
    spec = job_spec(method, ["a", "b"], 2, method={"config": config or {}}, training=training)
    directory = tmp_path / str(len(list(tmp_path.iterdir())))
    return model_of(federate(directory, spec, runners(spec, silos, tmp_path)))


@pytest.mark.parametrize("method", ["fedprox", "clsprox"])
def test_without_weight_it_is_fedavg_and_with_weight_silos_stay_nearer(tmp_path: Path, method: str) -> None:
    fedavg, same, near = (
        trained_model(tmp_path, *job) for job in (("fedavg",), (method, {"mu": 0}), (method, {"mu": 5}))
    )
    for name, array in fedavg.items():
        np.testing.assert_array_equal(same[name], array)
    start = job_spec(method, 2)
    initial = to_tree(build_model(start.model, start.data, derive_seed(start.training.seed, "model")))
    name = "classifier.weight"
    moved, kept = (np.linalg.norm(tree[name] - initial[name]) for tree in (fedavg, near))
    assert kept < 0.8 * moved


def test_a_weight_that_is_too_large_is_called_by_its_name(tmp_path: Path) -> None:
    with pytest.raises(SiloFailed, match="training diverged at learning rate"):
        trained_model(tmp_path, "fedprox", {"mu": 1e30})


def job_of(silos: int, **training: Any) -> FederatedJobSpec:
    plan = {"rounds": 40, "device": "cpu", **training}
    return job_spec("fedprox", silos, 40, method={"config": {"stragglers": 0.5}}, training=plan)


def work_of(spec: FederatedJobSpec, number: int, silos: Sequence[str]) -> dict[str, Any]:
    """Silo -> what its task of a round says of its work, of stragglers only."""
    half, job = registry.bind(spec).server(), server_context(spec, ModelSignature((), 4, 5))
    exchange = Exchange(Phase("train", 40, "train"), number, number, number)
    assigned = half.assign(job, State({"model": {}}), exchange, silos)
    assert list(assigned) == list(silos)
    assert all(asked.trees == {"model": "model"} for asked in assigned.values())
    return {silo: asked.settings["work"] for silo, asked in assigned.items() if asked.settings}


@pytest.mark.parametrize("training", [{"localEpochs": 4}, {"localSteps": 4}])
def test_half_of_a_rounds_silos_do_1_to_e_epochs_by_the_jobs_seed(training: dict[str, Any]) -> None:
    spec = job_of(9, **training)
    silos = references(spec)
    rounds = [work_of(spec, number, silos) for number in range(1, 41)]
    assert all(len(work) == 5 for work in rounds)  # half of nine, rounded up
    assert {epochs for work in rounds for epochs in work.values()} == {1, 2, 3, 4}
    assert {silo for work in rounds for silo in work} == set(silos)
    assert rounds[0] != rounds[1]
    assert work_of(spec, 1, silos[::-1]) == rounds[0]
    assert work_of(job_of(9, seed=1, **training), 1, silos) != rounds[0]


@pytest.mark.parametrize("unit", ["localEpochs", "localSteps"])
def test_a_straggler_does_what_its_task_says(tmp_path: Path, unit: str) -> None:
    silos = skewed_silos(tmp_path, {"a": [0, 1]})

    def sent_model(full: int, settings: dict[str, Any]) -> Tree:
        training = {"rounds": 1, "device": "cpu", "batchSize": 8, unit: full}
        spec = job_spec("fedprox", ["a"], method={"config": {"stragglers": 0.5}}, training=training)
        (runner,) = runners(spec, silos, tmp_path).values()
        task = SiloTask("train", "train", 1, 1, 1, {"model": runner.context.initial_model()}, settings)
        return runner.run(task, State()).tensors

    partial, whole, fewer = sent_model(5, {"work": 2}), sent_model(5, {}), sent_model(2, {})
    assert all(np.array_equal(partial[name], array) for name, array in fewer.items())
    assert not all(np.array_equal(partial[name], array) for name, array in whole.items())
    for work in (0, 6, 2.5, True):
        with pytest.raises(MethodError, match=r"task setting work: .* is not a whole number from 1 to 5"):
            sent_model(5, {"work": work})


def test_a_straggler_does_less_than_the_steps_that_small_silos_are_to_take(tmp_path: Path) -> None:
    """A pass over 24 examples is 3 steps; minSteps is of those that do all of the work."""
    silos = skewed_silos(tmp_path, {"a": [0, 1]})

    def sent_model(settings: dict[str, Any], **more: int) -> Tree:
        training = {"rounds": 1, "device": "cpu", "batchSize": 8, "localEpochs": 2, **more}
        spec = job_spec("fedprox", ["a"], method={"config": {"stragglers": 0.5}}, training=training)
        (runner,) = runners(spec, silos, tmp_path).values()
        task = SiloTask("train", "train", 1, 1, 1, {"model": runner.context.initial_model()}, settings)
        return runner.run(task, State()).tensors

    straggling, one_pass = sent_model({"work": 1}, minSteps=20), sent_model({"work": 1})
    assert all(np.array_equal(straggling[name], array) for name, array in one_pass.items())
    assert not all(
        np.array_equal(sent_model({}, minSteps=20)[name], array) for name, array in one_pass.items()
    )


def test_stragglers_of_one_epoch_are_refused() -> None:
    [(field, value, problem, remedy)] = bound_method("fedprox", config={"stragglers": 0.9}).check()
    assert (field, value) == ("spec.method.config.stragglers", 0.9)
    assert "one local epoch" in problem and "localEpochs or localSteps" in remedy
    assert (
        bound_method("fedprox", config={"stragglers": 0.9}, training={"rounds": 1, "localSteps": 2}).check()
        == []
    )
