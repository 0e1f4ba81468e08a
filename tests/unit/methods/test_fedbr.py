"""FedBR against the released code: its steps, its pseudo-data, and what leaves the silo."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fedsilo.learning.examples import Examples
from fedsilo.learning.models import Model
from fedsilo.methods.components.local import train_model
from fedsilo.methods.fedbr import silo as fedbr_silo
from fedsilo.methods.fedbr.config import THETA
from fedsilo.methods.fedbr.loss import BiasReducedLoss, Terms, projection
from fedsilo.methods.fedbr.silo import local_means, local_mixtures
from fedsilo.methods.interface import Reply, SiloContext, SiloTask
from fedsilo.methods.method import averaging_of
from fedsilo.methods.state import State, Tree
from fedsilo.wire import ModelSignature
from tests import reference_numbers
from tests.federate import bound_method, federate, job_spec, model_of, runners, silo_holding, skewed_silos
from tests.reference_numbers.networks import fixture_tree
from tests.unit.methods.harness import ROUND, answers, assert_close, server_context

NAMES = {
    "featurizer.l.": "encoder.0.",
    "discriminator.input.": "0.",
    "discriminator.hiddens.0.": "2.",
    "discriminator.output.": "4.",
}


def renamed_trees(tree: Tree) -> tuple[Tree, Tree]:
    """Model and projection of a recorded tree."""
    for old, new in NAMES.items():
        tree = {name.replace(old, new): array for name, array in tree.items()}
    model = {name: array for name, array in tree.items() if name[0] not in "024"}
    return model, {name: array for name, array in tree.items() if name not in model}


def network() -> Model:
    """A network of the recorded one's shape."""
    return Model(nn.Sequential(nn.Linear(6, 5), nn.ReLU()), nn.Linear(5, 4))


@pytest.mark.parametrize("variant", ["paper", "released"])
@pytest.mark.parametrize("steps", [1, 2, 3])
def test_what_a_silo_sends_is_that_of_the_released_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variant: str, steps: int
) -> None:
    """With the recorded pseudo-data, which are the only thing that is put in."""
    npz = reference_numbers.load("fedbr_rsm")
    pseudo = torch.tensor(npz["pseudo"]), torch.full((len(npz["pseudo"]), 4), 0.25)
    monkeypatch.setattr(fedbr_silo, "pseudo_data", lambda *_: lambda: pseudo)
    config = {
        "variant": variant,
        "pseudoWeight": float(npz["lam"]),
        "contrastWeight": float(npz["mu"]),
        "temperature": 1 / float(npz["tau_multiplier"]),
    }
    optimizer = {"learningRate": float(npz["lr"]), "momentum": 0}
    training = {"rounds": 1, "device": "cpu", "localEpochs": steps, "optimizer": optimizer}
    spec = job_spec("fedbr", ["a"], method={"config": config}, training=training)
    (runner,) = runners(spec, [silo_holding(tmp_path, "a", npz["x"], npz["y"])], tmp_path).values()
    # Pseudo-data and examples are pairs, so the order counts.
    runner.context = replace(runner.context, shuffle=False)
    model, theta = renamed_trees(fixture_tree(npz, "init/"))
    trees = {"model": model, "projection": {THETA + name: array for name, array in theta.items()}}
    sent = runner.run(SiloTask("train", "train", 1, 1, 1, trees, {}), State()).tensors
    model, theta = renamed_trees(fixture_tree(npz, f"step{steps}/"))
    assert_close(sent, model | {THETA + name: array for name, array in theta.items()})


@pytest.mark.parametrize(("variant", "first"), [("paper", 3), ("released", 1)])
def test_with_local_steps_the_released_code_averages_after_its_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variant: str, first: int
) -> None:
    taken: list[int | None] = []

    def record_training(silo: SiloContext, task: SiloTask, private: State, **given: Any) -> Reply:
        taken.append(given["plan"].max_steps)
        return train_model(silo, task, private, **given)

    monkeypatch.setattr(fedbr_silo, "train_model", record_training)
    spec = job_spec(
        "fedbr",
        ["a"],
        2,
        method={"config": {"variant": variant, "contrastWeight": 0}},
        training={"device": "cpu", "localSteps": 3},
    )
    npz = reference_numbers.load("fedbr_rsm")
    (runner,) = runners(spec, [silo_holding(tmp_path, "a", npz["x"], npz["y"])], tmp_path).values()
    model, _ = renamed_trees(fixture_tree(npz, "init/"))
    for number in (1, 2):
        runner.run(SiloTask("train", "train", number, number, 2, {"model": model}, {}), State())
    assert taken == [first, 3]


def test_the_mean_is_the_released_codes_uniform_one() -> None:
    """The recorded numbers are what each of two clients, of whatever size, took off the weights."""
    npz = reference_numbers.load("fedbr_aggregate")
    sent = {f"silos/s{k}": {"model": {"w": npz["w0"] - npz[f"d{k}"]}} for k in range(2)}
    method = bound_method("fedbr", config={"contrastWeight": 0})
    job, half = server_context(method.spec, ModelSignature((), 4, 5)), method.server()
    updates = answers(sent, {"silos/s0": 1, "silos/s1": 10}, averaging_of(method))
    state = half.aggregate(job, State({"model": {"w": npz["w0"]}}), ROUND, updates)
    assert_close(state.tree("model"), {"w": npz["w1"]})


def examples(n: int = 20) -> Examples:
    rng = np.random.default_rng(0)
    return Examples.from_arrays(rng.random((n, 6), np.float32), rng.integers(0, 4, n), "cpu")


def test_means_are_of_so_many_of_the_silos_own_examples_and_the_same_in_every_step() -> None:
    own = examples()
    draw = local_means(own, 4, size=5, averaged=20, seed=1)
    inputs, labels = draw()
    for mean in inputs:
        torch.testing.assert_close(mean, own.features.mean(dim=0))
    assert (labels == 0.25).all()
    few, again = local_means(own, 4, 5, 3, seed=1), local_means(own, 4, 5, 3, seed=1)
    assert torch.equal(few()[0], again()[0])
    assert torch.equal(few()[0], few()[0])
    assert not torch.equal(few()[0], local_means(own, 4, 5, 3, seed=2)()[0])
    assert local_means(examples(1), 4, 5, 10, seed=1)()[0].shape == (5, 6)


def test_a_mixture_is_half_a_proxy_and_half_an_example_and_new_in_every_step() -> None:
    own, proxies = examples(), torch.zeros(5, 6)
    draw = local_mixtures(own, 4, proxies, mixed=1, seed=1)
    inputs, labels = draw()
    for mixture, label in zip(inputs, labels, strict=True):
        (index,) = (own.features == 2 * mixture).all(dim=1).nonzero()[:, 0].tolist()
        assert label[own.labels[index]] == pytest.approx((1 + 1 / 4) / 2)
        assert label.sum() == pytest.approx(1)
    assert not torch.equal(draw()[0], inputs)
    assert not proxies.any()


def trained_trees(tmp_path: Path, method: str = "fedbr", **config: Any) -> dict[str, Tree]:
    silos = skewed_silos(tmp_path, {"a": [0, 1], "b": [2, 3]})
    training = {"rounds": 2, "device": "cpu", "minSteps": 3, "batchSize": 7}
    spec = job_spec(
        method,
        ["a", "b"],
        2,
        method={"config": config},
        training=training,
        aggregation={"weights": "uniform"},
    )
    directory = tmp_path / str(len(list(tmp_path.iterdir())))
    engine = federate(directory, spec, runners(spec, silos, tmp_path))
    trees = {name: engine.state.tree(name) for name in engine.state.trees}
    return {**trees, "result": model_of(engine)}


def test_without_both_components_it_is_fedavg_and_sends_no_projection(tmp_path: Path) -> None:
    plain, fedavg = (
        trained_trees(tmp_path, pseudoWeight=0, contrastWeight=0),
        trained_trees(tmp_path, "fedavg"),
    )
    assert set(plain) == {"model", "result"}
    for name, array in fedavg["result"].items():
        np.testing.assert_array_equal(plain["result"][name], array)


def test_with_mixup_batches_are_those_of_the_method_mixup(tmp_path: Path) -> None:
    """Without components nothing else is left; with them, the mixtures are what is contrasted."""
    mixed = trained_trees(tmp_path, pseudoWeight=0, contrastWeight=0, mixup=0.2)
    alone = trained_trees(tmp_path, "mixup", alpha=0.2)
    for name, array in alone["result"].items():
        np.testing.assert_array_equal(mixed["result"][name], array)
    whole, plain = trained_trees(tmp_path, mixup=0.2), trained_trees(tmp_path)
    for name, array in plain["projection"].items():
        assert not np.array_equal(whole["projection"][name], array), name


@pytest.mark.parametrize("pseudo_data", ["means", "mixture"])
def test_the_projection_moves_only_by_the_max_step(tmp_path: Path, pseudo_data: str) -> None:
    up, still = (
        trained_trees(tmp_path, pseudoData=pseudo_data),
        trained_trees(tmp_path, pseudoData=pseudo_data, maxStep=False),
    )
    longer = trained_trees(tmp_path, pseudoData=pseudo_data, maxStep=False, contrastWeight=5)
    for name, array in still["projection"].items():
        # Equal up to the rounding of a mean of two equal numbers.
        np.testing.assert_allclose(longer["projection"][name], array, rtol=1e-6)
    assert any(not np.allclose(up["projection"][name], array) for name, array in still["projection"].items())
    assert any(not np.array_equal(up["result"][name], array) for name, array in still["result"].items())


def test_no_gradient_of_the_models_step_reaches_the_projection() -> None:
    model, theta, own = network(), projection(5), examples()
    terms = Terms(pseudo=1, contrast=0.5, temperature=0.5, max_step=False)
    loss = BiasReducedLoss(terms, model, theta, local_means(own, 4, 8, 3, seed=0), rate=0.1)
    # A batch that is shorter than the pseudo-data, and one that is longer.
    for n in (3, 20):
        loss(model, *own.batch(torch.arange(n))).backward()  # type: ignore[no-untyped-call]
        assert all(parameter.grad is None for parameter in theta.parameters())
        assert all(parameter.grad is not None for parameter in model.parameters())
