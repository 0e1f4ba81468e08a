"""MOON against the released codes, and its first round."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedsilo.learning.models import to_tree
from fedsilo.learning.training import LocalTraining, fit
from fedsilo.methods.interface import SiloTask
from fedsilo.methods.moon import MoonConfig, contrastive_loss
from fedsilo.methods.state import State, Tree
from tests import reference_numbers
from tests.federate import (
    drive,
    federate,
    job_spec,
    local_silos,
    model_of,
    open_engine,
    runners,
    silo_holding,
    skewed_silos,
)
from tests.reference_numbers.networks import fixture_tree, harness_model
from tests.unit.methods.harness import (
    COMPARED_ROUNDS,
    as_recorded,
    assert_close,
    recorded_silo,
)


@pytest.mark.parametrize("fixture", ["moon_local_0prev", "moon_local_1prev"])
def test_local_training_is_that_of_the_released_code(fixture: str) -> None:
    npz = reference_numbers.load(fixture)
    config = MoonConfig(mu=float(npz["mu"]), temperature=float(npz["tau"]))
    silo, model = recorded_silo("moon", fixture), harness_model(npz)
    previous = [tree] if (tree := fixture_tree(npz, "prev0/")) else []
    loss = contrastive_loss(silo, config, fixture_tree(npz, "glob/"), previous)
    plan = LocalTraining(
        lr=float(npz["lr"]),
        momentum=float(npz["momentum"]),
        weight_decay=float(npz["wd"]),
        epochs=int(npz["epochs"]),
        batch_size=int(npz["batch"]),
        shuffle=False,
    )
    fit(model, silo.train, plan, loss=loss)
    assert_close(to_tree(model), fixture_tree(npz, "after/"))


RECORDED_RUNS = [
    ("niid_moon", "hp/mu", "hp/temperature", "round{}/"),
    ("map_moon", "arg/reg_lamb", None, "round{}/g/"),
]


@pytest.mark.parametrize("rounds", COMPARED_ROUNDS)
@pytest.mark.parametrize(("fixture", "mu", "temperature", "prefix"), RECORDED_RUNS)
def test_every_round_is_that_of_the_released_code(
    tmp_path: Path, fixture: str, mu: str, temperature: str | None, prefix: str, rounds: int
) -> None:
    npz = reference_numbers.load(fixture)
    config = {"mu": float(npz[mu]), "temperature": float(npz[temperature]) if temperature else 0.5}
    engine = as_recorded(tmp_path, "moon", fixture, rounds, config)
    assert_close(model_of(engine), fixture_tree(npz, prefix.format(rounds)))


def trained_model(tmp_path: Path, method: str, rounds: int, **config: Any) -> Tree:
    silos = skewed_silos(tmp_path, {"a": [0, 1], "b": [2, 3]})
    spec = job_spec(method, ["a", "b"], rounds, method={"config": config})
    directory = tmp_path / str(len(list(tmp_path.iterdir())))
    return model_of(federate(directory, spec, runners(spec, silos, tmp_path)))


def test_the_first_round_is_fedavgs_and_the_second_is_not(tmp_path: Path) -> None:
    for rounds in (1, 2):
        fedavg, moon = (
            trained_model(tmp_path, "fedavg", rounds),
            trained_model(tmp_path, "moon", rounds, mu=5),
        )
        assert all(np.array_equal(moon[name], array) for name, array in fedavg.items()) == (rounds == 1)


def test_a_silo_keeps_the_model_that_it_sent_and_no_other(tmp_path: Path) -> None:
    silos = skewed_silos(tmp_path, {"a": [0, 1]})
    spec = job_spec("moon", ["a"], 2)
    engine = open_engine(tmp_path / "aggregator", spec)
    answering = local_silos(tmp_path, runners(spec, silos, tmp_path))
    drive(engine, answering)
    kept = answering[0].private_state.tree("model")
    for name, array in model_of(engine).items():
        np.testing.assert_array_equal(kept[name], array)


@pytest.mark.parametrize("pool", [1, 2, 4])
def test_every_previous_model_is_one_more_logit(tmp_path: Path, pool: int) -> None:
    """The loss in float64 by its formula, with the given model first and a term for each previous one."""
    (runner,) = runners(job_spec("moon", ["a"]), skewed_silos(tmp_path, {"a": [0, 1]}), tmp_path).values()
    silo, rng = runner.context, np.random.default_rng(pool)

    def random_tree() -> Tree:
        return {t.name: rng.normal(size=t.shape).astype(np.float32) for t in silo.signature.tensors}

    given, previous = random_tree(), [random_tree() for _ in range(pool)]
    x, y = silo.train.batch(torch.arange(8))
    model = silo.model(random_tree())
    loss = contrastive_loss(silo, MoonConfig(mu=0.7, temperature=0.3), given, previous)(model, x, y)
    features, logits = model.features(x).detach(), model(x).detach().double().numpy()
    z = features.double().numpy()
    others = [silo.model(tree).features(x).detach().double().numpy() for tree in (given, *previous)]
    norms = [np.linalg.norm(z, axis=1) * np.linalg.norm(o, axis=1) for o in others]
    dots = [(z * o).sum(axis=1) for o in others]
    # A representation of zero has no direction: its cosine is 0.
    cosines = np.stack([d / np.maximum(n, 1e-8) for d, n in zip(dots, norms, strict=True)], axis=1)
    odds = np.exp(cosines / 0.3)
    contrast = -np.log(odds[:, 0] / odds.sum(1)).mean()
    entropy = (np.log(np.exp(logits).sum(1)) - logits[np.arange(8), y.numpy()]).mean()
    assert odds.shape == (8, 1 + pool)
    assert loss.item() == pytest.approx(entropy + 0.7 * contrast, rel=1e-5)


def test_the_pool_is_first_in_first_out(tmp_path: Path) -> None:
    spec = job_spec("moon", ["a"], 3, method={"config": {"previousModels": 2}})
    (runner,) = runners(spec, skewed_silos(tmp_path, {"a": [0, 1]}), tmp_path).values()
    private, sent = State(), list[Tree]()
    for number in (1, 2, 3):
        task = SiloTask("train", "train", number, number, 3, {"model": runner.context.initial_model()}, {})
        reply = runner.run(task, private)
        assert reply.private is not None
        private = reply.private
        sent.insert(0, reply.tensors)
        assert list(private.trees) == ["model", "model-1"][:number]
        for name, tree in zip(private.trees, sent, strict=False):
            assert_close(private.tree(name), tree)


def test_the_released_form_leaves_an_incomplete_last_batch_out_and_the_printed_one_does_not(
    tmp_path: Path,
) -> None:
    """Seven examples in batches of three, in their order, twice: the seventh counts, or it does not."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(7, 6)).astype(np.float32), np.arange(7) % 4

    def sent_model(n: int, variant: str) -> Tree:
        training = {"rounds": 1, "device": "cpu", "batchSize": 3, "localEpochs": 2}
        spec = job_spec("moon", ["a"], method={"config": {"variant": variant}}, training=training)
        (runner,) = runners(spec, [silo_holding(tmp_path, "a", x[:n], y[:n])], tmp_path).values()
        runner.context = replace(runner.context, shuffle=False)
        task = SiloTask("train", "train", 1, 1, 1, {"model": runner.context.initial_model()}, {})
        return runner.run(task, State()).tensors

    six = sent_model(6, "paper")
    assert all(np.array_equal(array, six[name]) for name, array in sent_model(7, "released").items())
    assert not any(np.array_equal(array, six[name]) for name, array in sent_model(7, "paper").items())
    # The only batch of a small silo stays, or it would have nothing to learn from.
    two = sent_model(2, "paper")
    assert all(np.array_equal(array, two[name]) for name, array in sent_model(2, "released").items())


def test_a_representation_of_zero_has_a_finite_gradient(tmp_path: Path) -> None:
    (runner,) = runners(job_spec("moon", ["a"]), skewed_silos(tmp_path, {"a": [0, 1]}), tmp_path).values()
    silo = runner.context
    start = job_spec("moon", 1)
    tree = {t.name: np.full(t.shape, -1, np.float32) for t in silo.signature.tensors}
    model = silo.model(tree)
    x, y = torch.ones(4, *start.data.input_shape), torch.tensor([0, 1, 0, 1])
    assert not model.features(x).any()
    contrastive_loss(silo, MoonConfig(), tree, [tree])(model, x, y).backward()  # type: ignore[no-untyped-call]
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())
