"""Ditto and DittoRS against the released codes and the printed algorithm."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import nn

from fedsilo.learning.models import Model
from fedsilo.methods import registry
from fedsilo.methods.interface import PERSONAL_TREE, Reply, SiloTask
from fedsilo.methods.method import averaging_of
from fedsilo.methods.state import State, Tree
from tests import reference_numbers
from tests.federate import federate, job_spec, runners, silo_of_file, skewed_silos
from tests.reference_numbers.networks import fixture_tree
from tests.unit.methods.harness import (
    COMPARED_ROUNDS,
    ObservedSilo,
    assert_close,
    run_recorded_job,
)


def network(input_shape: tuple[int, ...], classes: int) -> Model:
    """Network of the fixtures; its weights come with the task and the private state."""
    return Model(nn.Sequential(nn.Linear(input_shape[0], 5), nn.ReLU()), nn.Linear(5, classes))


def after_three_steps(variant: str, momentum: float = 0.0) -> tuple[Reply, reference_numbers.Numbers]:
    npz, path = reference_numbers.load("ditto_client"), reference_numbers.path("ditto_client")
    steps = int(npz["steps"])
    training = {
        "localEpochs": steps,
        "batchSize": len(npz["x"]),
        "optimizer": {"learningRate": float(npz["lr"]), "momentum": momentum, "weightDecay": 0},
    }
    config = {"variant": variant, "pullWeight": float(npz["lam"])}
    model = {"name": f"python:{__name__}:network", "config": {}}
    spec = job_spec("ditto", ["c0"], method={"config": config}, training=training, model=model)
    (runner,) = runners(spec, [silo_of_file(path, "c0", features="x", labels="y")], path.parent).values()
    task = SiloTask("train", "train", 1, 1, 1, {"model": fixture_tree(npz, "w0/")}, {})
    return runner.run(task, State({PERSONAL_TREE: fixture_tree(npz, "v0/")})), npz


def personal_model(reply: Reply) -> Tree:
    assert reply.private is not None
    return reply.private.tree(PERSONAL_TREE)


def test_the_printed_steps_are_those_of_a_code_that_takes_them() -> None:
    reply, npz = after_three_steps("paper")
    assert_close(personal_model(reply), fixture_tree(npz, "pfllib/v/"))
    assert_close(reply.tensors, fixture_tree(npz, "shuu/w/"))  # the common model is no other for it


def test_the_released_steps_are_those_of_the_released_code() -> None:
    reply, npz = after_three_steps("released")
    assert_close(personal_model(reply), fixture_tree(npz, "shuu/v/"))
    assert_close(reply.tensors, fixture_tree(npz, "shuu/w/"))


@pytest.mark.parametrize("rounds", COMPARED_ROUNDS)
@pytest.mark.parametrize(("fixture", "variant"), [("map_ditto", "map"), ("map_dittors", "released")])
def test_maps_form_is_that_of_its_code(tmp_path: Path, fixture: str, variant: str, rounds: int) -> None:
    npz, method = reference_numbers.load(fixture), fixture.removeprefix("map_")
    config: dict[str, Any] = {"variant": variant, "pullWeight": float(npz["arg/reg_lamb"])}
    if "arg/alpha" in npz:
        config["alpha"] = float(npz["arg/alpha"])
    engine, silos = run_recorded_job(tmp_path, method, fixture, rounds, config, aggregation={})
    assert_close(engine.state.tree("model"), fixture_tree(npz, f"round{rounds}/g/"))
    for k, silo in enumerate(silos):
        assert_close(
            silo.private_state.tree(PERSONAL_TREE), fixture_tree(npz, f"round{rounds}/client_models/{k}/")
        )


def kept_by(tmp_path: Path, method: str, **config: Any) -> tuple[Reply, SiloTask]:
    """What the silo `a`, of two classes, makes of its second round."""
    silos = skewed_silos(tmp_path, {"a": [0, 1], "b": [2, 3]})
    spec = job_spec(method, ["a", "b"], 2, method={"config": config})
    observed = {name: ObservedSilo(runner) for name, runner in runners(spec, silos, tmp_path).items()}
    engine = federate(tmp_path, spec, observed)
    assert engine.failure is None
    task, reply = observed["silos/a"].seen["train", 2]
    return reply, task


@pytest.mark.parametrize("variant", ["paper", "released", "map"])
def test_without_a_pull_the_silos_own_model_is_trained_alone(tmp_path: Path, variant: str) -> None:
    for name in ("ditto", "alone"):
        (tmp_path / name).mkdir()
    reply, _ = kept_by(tmp_path / "ditto", "ditto", variant=variant, pullWeight=0)
    silos = skewed_silos(tmp_path / "alone", {"a": [0, 1], "b": [2, 3]})
    spec = job_spec("fedavg", ["a", "b"], 2)
    runner = runners(spec, silos, tmp_path / "alone")["silos/a"]
    tree = runner.context.initial_model()
    for number in (1, 2):
        alone = SiloTask("train", "train", number, number, 2, {"model": tree}, {})
        tree = runner.run(alone, State()).tensors
    for name, array in tree.items():
        np.testing.assert_allclose(personal_model(reply)[name], array, rtol=1e-5, atol=1e-6)


def test_the_loss_is_that_of_the_common_model_in_every_form(tmp_path: Path) -> None:
    losses = []
    for variant in ("paper", "released", "map"):
        (tmp_path / variant).mkdir()
        reply, _ = kept_by(tmp_path / variant, "ditto", variant=variant, pullWeight=2.0)
        losses.append(reply.metrics["loss"])
    assert losses == pytest.approx([losses[0]] * 3, rel=1e-5)


def test_a_stronger_pull_leaves_the_silos_own_model_nearer_to_the_common_one(tmp_path: Path) -> None:
    apart = []
    for number, weight in enumerate((0.0, 1.0, 5.0)):
        (tmp_path / f"{number}").mkdir()
        reply, task = kept_by(tmp_path / f"{number}", "ditto", pullWeight=weight)
        own, given = personal_model(reply), task.trees["model"]
        apart.append(sum(float(np.square(own[name] - given[name]).sum()) for name in own))
    assert apart[0] > apart[1] > apart[2]


def test_the_restriction_is_of_the_common_model_alone(tmp_path: Path) -> None:
    """Without a pull, nothing of it reaches the silo's own model."""
    for name in ("plain", "restricted"):
        (tmp_path / name).mkdir()
    plain, _ = kept_by(tmp_path / "plain", "ditto", pullWeight=0)
    restricted, _ = kept_by(tmp_path / "restricted", "dittors", pullWeight=0, alpha=0.1)
    assert_close(personal_model(restricted), personal_model(plain))
    assert np.abs(restricted.tensors["classifier.weight"] - plain.tensors["classifier.weight"]).max() > 1e-3


@pytest.mark.parametrize("method", ["ditto", "dittors"])
def test_both_models_begin_with_the_jobs_weights_and_are_averaged_alike(method: str) -> None:
    bound = registry.bind(job_spec(method, 2))
    assert bound.models.silos_need_initial and averaging_of(bound) == "uniform" and bound.models.personal
