"""Mixup and FedMix-local against the equations and the released code: their mixtures, and what they are drawn from."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from fedsilo.learning.models import Model, build_model, to_tree
from fedsilo.learning.preprocessing import Preprocessing
from fedsilo.methods import fedmix
from fedsilo.methods.checks import check_training
from fedsilo.methods.components.mixing import mixup_loss
from fedsilo.methods.fedmix import FedMixConfig, means_of, mixed_with_means
from fedsilo.methods.interface import SiloContext, SiloTask
from fedsilo.methods.state import State
from tests import reference_numbers
from tests.federate import bound_method, federate, job_spec, model_of, runners, silo_holding, skewed_silos
from tests.reference_numbers.networks import fixture_tree
from tests.unit.methods.harness import assert_close


def a_silo(tmp_path: Path, method: str, **sections: Any) -> tuple[SiloContext, SiloTask, Model]:
    spec = job_spec(method, ["a"], **sections)
    (runner,) = runners(spec, skewed_silos(tmp_path, {"a": [0, 1, 3]}, samples=8), tmp_path).values()
    model = build_model(spec.model, spec.data, seed=3)
    return runner.context, SiloTask("train", "train", 1, 1, 1, {"model": to_tree(model)}, {}), model


def test_a_mixture_has_the_losses_of_both_of_its_labels(tmp_path: Path) -> None:
    """With the same draws, example by example, for three batches."""
    silo, task, model = a_silo(tmp_path, "mixup")
    loss, rng = mixup_loss(silo, task, 0.2), np.random.default_rng(silo.seed("mixup", "train", 1))
    x, y = silo.train.batch(torch.arange(9))
    for n in (9, 5, 1):
        part, order = rng.beta(0.2, 0.2), rng.permutation(n)
        wanted = 0.0
        for i, j in enumerate(order):
            (log,) = model((part * x[i] + (1 - part) * x[j])[None]).log_softmax(dim=1).detach()
            wanted -= (part * log[y[i]] + (1 - part) * log[y[j]]).item() / n
        assert loss(model, x[:n], y[:n]).item() == pytest.approx(wanted, rel=1e-5)


@pytest.mark.parametrize("make", [lambda s, t: mixup_loss(s, t, 0.2), lambda s, t: means(s, t)])
def test_draws_are_those_of_the_silo_and_the_round(tmp_path: Path, make: Any) -> None:
    silo, task, model = a_silo(tmp_path, "mixup")
    x, y = silo.train.batch(torch.arange(9))

    def three(task: SiloTask) -> list[float]:
        loss = make(silo, task)
        return [loss(model, x, y).item() for _ in range(3)]

    first = three(task)
    assert three(task) == first
    assert len(set(first)) == 3
    assert three(replace(task, round=2)) != first


def means(silo: SiloContext, task: SiloTask, **config: Any) -> Any:
    return mixed_with_means(silo, task, FedMixConfig.model_validate({"averaged": 4, **config}))


def test_a_step_of_fedmix_is_that_of_the_released_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the recorded means, one for each example, which are the only thing that is put in."""
    npz = reference_numbers.load("fedmix_fedbr")
    recorded = torch.tensor(npz["aug_x"]), torch.tensor(npz["aug_y"])
    monkeypatch.setattr(fedmix, "means_of", lambda *_: recorded)
    monkeypatch.setattr(torch, "randint", lambda high, size, **_: torch.arange(high)[: size[0]])
    optimizer = {"learningRate": float(npz["lr"]), "momentum": 0}
    training = {"rounds": 1, "device": "cpu", "batchSize": 12, "optimizer": optimizer}
    config = {"variant": "released", "meanWeight": float(npz["lam"])}
    spec = job_spec("fedmix", ["a"], method={"config": config}, training=training)
    (runner,) = runners(spec, [silo_holding(tmp_path, "a", npz["x"], npz["y"])], tmp_path).values()
    runner.context = replace(runner.context, shuffle=False)
    task = SiloTask("train", "train", 1, 1, 1, {"model": fixture_tree(npz, "init/")}, {})
    reply = runner.run(task, State())
    assert_close(reply.tensors, fixture_tree(npz, "after/"))
    assert reply.metrics["loss"] == pytest.approx(float(npz["loss"]), rel=2e-5)


def test_the_printed_loss_is_the_first_order_of_a_mixture(tmp_path: Path) -> None:
    """(1 - l) CE(f(u), y) + l CE(f(u), y_m) + l d/dt CE(f(u + t x_m), y), by differences, example by example."""
    silo, task, model = a_silo(tmp_path, "fedmix")
    model = model.double()
    part, n = 0.3, 7
    loss = means(silo, task, meanWeight=part)
    inputs, labels = means_of(silo, model, 4)
    drawn = torch.randint(
        len(inputs), (n,), generator=torch.Generator().manual_seed(silo.seed("means", "train", 1))
    )
    x, y = silo.train.batch(torch.arange(n))
    found = loss(model, x.double(), y).item()
    wanted = 0.0
    for i in range(n):
        u, mean = (1 - part) * x[i].double(), inputs[drawn[i]].double()

        def ce(at: torch.Tensor, target: torch.Tensor) -> float:
            return functional.cross_entropy(model(at[None]), target[None]).item()

        slope = (ce(u + 1e-6 * mean, y[i]) - ce(u - 1e-6 * mean, y[i])) / 2e-6
        own, other = ce(u, y[i]), ce(u, labels[drawn[i]].double())
        wanted += ((1 - part) * own + part * other + part * slope) / n
    assert found == pytest.approx(wanted, rel=1e-6)


@pytest.mark.parametrize(("averaged", "groups"), [(1, 24), (4, 6), (10, 2), (24, 1), (100, 1)])
def test_means_are_of_the_silos_own_examples_each_in_one(tmp_path: Path, averaged: int, groups: int) -> None:
    silo, _, model = a_silo(tmp_path, "fedmix")
    inputs, labels = means_of(silo, model, averaged)
    assert inputs.shape == (groups, 6)
    assert labels.shape == (groups, 4)
    torch.testing.assert_close(labels.sum(dim=1), torch.ones(groups))
    assert not labels[:, 2].any()
    if groups * averaged >= 24:  # nobody is left over
        torch.testing.assert_close(inputs.mean(dim=0), silo.train.features.mean(dim=0))


def test_missing_raw_values_are_filled_in_before_anything_is_averaged(tmp_path: Path) -> None:
    silo, _, model = a_silo(tmp_path, "fedmix")
    silo.train.features[::3, 2] = torch.nan
    numbers = {"fill": np.full(6, 0.5), "mean": np.ones(6), "scale": np.full(6, 2.0)}
    model.preprocessing = Preprocessing(numbers)
    inputs, _ = means_of(silo, model, 4)
    filled = torch.where(silo.train.features.isnan(), 0.5, silo.train.features)
    torch.testing.assert_close(inputs.mean(dim=0), (filled.mean(dim=0) - 1) / 2)


def trained_model(tmp_path: Path, method: str, **config: Any) -> dict[str, np.ndarray]:
    silos = skewed_silos(tmp_path, {"a": [0, 1], "b": [2, 3]})
    optimizer = {"learningRate": 0.1, "momentum": 0}
    training = {"rounds": 2, "device": "cpu", "minSteps": 6, "optimizer": optimizer}
    spec = job_spec(method, ["a", "b"], 2, method={"config": config}, training=training)
    directory = tmp_path / str(len(list(tmp_path.iterdir())))
    return model_of(federate(directory, spec, runners(spec, silos, tmp_path)))


def test_without_means_fedmix_is_fedavg(tmp_path: Path) -> None:
    fedavg, other = trained_model(tmp_path, "fedavg"), trained_model(tmp_path, "fedmix")
    same = trained_model(tmp_path, "fedmix", meanWeight=0)
    for name, array in fedavg.items():
        np.testing.assert_allclose(same[name], array, rtol=1e-5, atol=1e-6)
        assert not np.allclose(other[name], array, rtol=1e-3, atol=0)


def test_fedmix_has_no_float16() -> None:
    (fault,) = check_training(bound_method("fedmix", training={"rounds": 1, "precision": "float16"}))
    assert fault[:2] == ("spec.training.precision", "float16") and fault[3] == "use bfloat16 or float32"
    assert check_training(bound_method("mixup", training={"rounds": 1, "precision": "float16"})) == []
