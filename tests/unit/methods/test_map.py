"""MAP and ScaMAP against the released code, and their two stages against the algorithm."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fedsilo.api.faults import ManifestFaults
from fedsilo.api.job import ModelSpec
from fedsilo.learning.evaluation import evaluate
from fedsilo.learning.examples import Examples
from fedsilo.learning.models import Model
from fedsilo.methods.components.two_stages import TwoStageConfig, stages
from fedsilo.methods.interface import PERSONAL_TREE, Reply, SiloTask
from fedsilo.methods.scamap import RELEASED_STAGE
from fedsilo.methods.state import State
from fedsilo.silo.context import LocalContext
from tests import reference_numbers
from tests.federate import bound_method, job_spec, runners, skewed_silos
from tests.reference_numbers.networks import fixture_tree
from tests.unit.methods.harness import (
    COMPARED_ROUNDS,
    assert_close,
    fixture_runners,
    fixture_spec,
    run_recorded_job,
)

BATCH_NORM = ModelSpec(name=f"python:{__name__}:batch_norm")

MASKS = {"map_map_released": "released", "map_map_mask": "released-mask", "map_scamap_mask": "released-mask"}


def settings(fixture: str) -> tuple[str, dict[str, Any]]:
    """Method and configuration of a fixture."""
    npz = reference_numbers.load(fixture)
    config = {
        "variant": MASKS[fixture],
        "alpha": float(npz["arg/alpha"]),
        "transferWeight": float(npz["arg/reg_lamb"]),
    }
    if "arg/glo_lr" not in npz:
        return "map", config
    return "scamap", config | {"serverLearningRate": float(npz["arg/glo_lr"])}


@pytest.mark.parametrize("rounds", COMPARED_ROUNDS)
@pytest.mark.parametrize("fixture", MASKS)
def test_the_released_forms_are_those_of_the_released_code(tmp_path: Path, fixture: str, rounds: int) -> None:
    npz = reference_numbers.load(fixture)
    method, config = settings(fixture)
    engine, silos = run_recorded_job(tmp_path, method, fixture, 3, config, aggregation={}, stop=rounds)
    assert_close(engine.state.tree("model"), fixture_tree(npz, f"round{rounds}/g/"))
    scores = []
    for k, silo in enumerate(silos):
        assert_close(silo.private_state.tree(PERSONAL_TREE), fixture_tree(npz, f"round{rounds}/hpms/{k}/"))
        if method == "scamap":
            assert_close(silo.private_state.tree("control"), fixture_tree(npz, f"round{rounds}/ci/{k}/"))
        scores.append(personal_accuracy(fixture, k, silo.private_state))
    if method == "scamap":
        assert_close(engine.state.tree("control"), fixture_tree(npz, f"round{rounds}/c/"))
    assert np.mean(scores) == pytest.approx(npz["log/LOCAL_TACCS"][2 * rounds - 1], abs=1e-6)


def personal_accuracy(fixture: str, k: int, private: State) -> float:
    """Accuracy of a client's private model on its own test data."""
    npz = reference_numbers.load(fixture)
    context = fixture_runners(fixture_spec("fedavg", fixture, 1), fixture)[f"silos/c{k}"].context
    test = Examples.from_arrays(npz[f"tx{k}"], npz[f"ty{k}"], "cpu")
    return evaluate(context.model(private.tree(PERSONAL_TREE)), test).accuracy


def batch_norm(input_shape: tuple[int, ...], classes: int) -> Model:
    """A network with BatchNorm, for `spec.model.name`."""
    width = input_shape[0]
    return Model(nn.Sequential(nn.Linear(width, 5), nn.BatchNorm1d(5), nn.ReLU()), nn.Linear(5, classes))


def silo_and_task(directory: Path, **training: Any) -> tuple[LocalContext, SiloTask]:
    """A silo of 24 examples of two classes, and its first task."""
    spec = job_spec("map", ["a"], 4, training={"rounds": 4, "device": "cpu", "batchSize": 8, **training})
    (runner,) = runners(spec, skewed_silos(directory, {"a": [0, 1]}), directory).values()
    model = runner.context.initial_model()
    return runner.context, SiloTask("train", "train", 1, 1, 4, {"model": model}, {"drawn": 1.0})


@pytest.mark.parametrize(("epochs", "halves"), [(1, (2, 1)), (2, (3, 3)), (3, (5, 4))])
def test_the_first_stage_has_half_of_the_steps_rounded_up(
    tmp_path: Path, epochs: int, halves: tuple[int, int]
) -> None:
    silo, task = silo_and_task(tmp_path, localEpochs=epochs)
    first, second = stages(silo, task, TwoStageConfig(), RELEASED_STAGE)
    assert second is not None
    assert (first.max_steps, second.max_steps) == halves
    assert first.lr == second.lr
    assert first.seed != second.seed


def test_the_released_second_stage_is_short_and_slow(tmp_path: Path) -> None:
    silo, task = silo_and_task(tmp_path, localEpochs=20)
    first, second = stages(silo, task, TwoStageConfig(variant="released"), RELEASED_STAGE)
    assert second is not None
    assert first == silo.local_training(task)
    assert (second.min_steps, second.max_steps, second.lr) == (12, 12, first.lr / 2)


def silo_reply(silo: LocalContext, task: SiloTask, private: State, **config: Any) -> Reply:
    return bound_method("map", config=config).silo()["train"](silo, task, private)


def test_one_step_is_the_common_models_and_the_private_model_is_what_was_sent(tmp_path: Path) -> None:
    silo, task = silo_and_task(tmp_path, batchSize=24)
    reply = silo_reply(silo, task, State())
    assert reply.private is not None
    for name, sent in reply.tensors.items():
        np.testing.assert_array_equal(reply.private.tree(PERSONAL_TREE)[name], sent)


def test_silos_with_all_classes_scale_by_shares_as_fedrs_does(tmp_path: Path) -> None:
    # One step is the first stage's, so that what is sent is all that FedRS does.
    silo, task = silo_and_task(tmp_path, batchSize=24)
    fedrs = bound_method("fedrs", config={"variant": "complete"})
    wanted = fedrs.silo()["train"](silo, task, State()).tensors
    assert_close(silo_reply(silo, task, State(), variant="complete").tensors, wanted)
    with pytest.raises(AssertionError):
        assert_close(silo_reply(silo, task, State()).tensors, wanted)


def test_what_is_sent_does_not_depend_on_the_private_model(tmp_path: Path) -> None:
    silo, task = silo_and_task(tmp_path)
    other = {name: array + 1 for name, array in task.trees["model"].items()}
    private = State({PERSONAL_TREE: other}, {"selections": 3})
    alone, taught = silo_reply(silo, task, State()), silo_reply(silo, task, private, transferWeight=0.5)
    for name, sent in alone.tensors.items():
        np.testing.assert_array_equal(taught.tensors[name], sent)
    assert alone.private is not None
    assert taught.private is not None
    assert taught.private.values == {"selections": 4}
    name = "classifier.weight"
    assert not np.array_equal(alone.private.tree(PERSONAL_TREE)[name], alone.tensors[name])
    assert not np.array_equal(
        alone.private.tree(PERSONAL_TREE)[name], taught.private.tree(PERSONAL_TREE)[name]
    )


def test_the_released_code_counts_batch_norms_statistics_of_the_private_model_anew(tmp_path: Path) -> None:
    silo, task = silo_and_task(tmp_path)
    silo = replace(silo, spec=silo.spec.model_copy(update={"model": BATCH_NORM}))
    task = replace(task, trees={"model": silo.initial_model()})
    for variant, tracked in (("paper", 3), ("released", 3)):
        reply = silo_reply(silo, task, State(), variant=variant)
        assert reply.private is not None
        own = reply.private.tree(PERSONAL_TREE)
        assert own["encoder.1.num_batches_tracked"] == tracked
        if variant == "released":
            model = silo.model(own)
            with torch.no_grad():
                before = model.encoder.get_submodule("0")(silo.train.batch(torch.arange(24))[0])
            np.testing.assert_allclose(own["encoder.1.running_mean"], before.mean(0), atol=1e-5)


@pytest.mark.parametrize("method", ["map", "scamap"])
@pytest.mark.parametrize(
    ("field", "value"), [("alpha", 1.1), ("alpha", float("nan")), ("transferWeight", -1), ("variant", "mask")]
)
def test_a_setting_out_of_range_is_refused(method: str, field: str, value: object) -> None:
    with pytest.raises(ManifestFaults, match=rf"spec\.method\.config\.{field}"):
        bound_method(method, config={field: value})
