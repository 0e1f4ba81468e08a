"""DANN against the released code: its steps by turns, the reversal layer, and what travels."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from typing_extensions import override

from fedsilo.errors import MethodError
from fedsilo.learning.models import Model
from fedsilo.methods.dann.config import DISCRIMINATOR, DANNConfig
from fedsilo.methods.dann.discriminator import discriminator
from fedsilo.methods.dann.silo import AdversarialLoss
from fedsilo.methods.interface import SiloTask
from fedsilo.methods.state import State, Tree
from tests import reference_numbers
from tests.federate import bound_method, federate, job_spec, model_of, runners, silo_holding, skewed_silos
from tests.reference_numbers.networks import fixture_tree
from tests.unit.methods.harness import assert_close
from tests.unit.methods.test_declarations import SIGNATURE

NAMES = {
    "featurizer.l.": "encoder.0.",
    "discriminator.input.": "0.",
    "discriminator.hiddens.0.": "2.",
    "discriminator.output.": "4.",
}
UNUSED_TENSORS = ("update_count", "class_embeddings.weight")


def renamed_trees(tree: Tree) -> tuple[Tree, Tree]:
    """Model and discriminator of a recorded tree, as they travel."""
    for old, new in NAMES.items():
        tree = {name.replace(old, new): array for name, array in tree.items()}
    model = {
        name: array for name, array in tree.items() if name[0] not in "024" and name not in UNUSED_TENSORS
    }
    return model, {DISCRIMINATOR + name: array for name, array in tree.items() if name[0] in "024"}


def test_what_a_silo_sends_is_that_of_the_released_code(tmp_path: Path) -> None:
    npz = reference_numbers.load("dann")
    config = {"variant": "released", "reversal": float(npz["lam"]), "hidden": 7}
    optimizer = {"learningRate": float(npz["lr"]), "momentum": 0}
    training = {"rounds": 1, "device": "cpu", "localEpochs": 4, "optimizer": optimizer}
    spec = job_spec("dann", 3, method={"config": config}, training=training)
    (runner,) = runners(spec, [silo_holding(tmp_path, "s2", npz["x"], npz["y"])], tmp_path).values()
    runner.context = replace(runner.context, shuffle=False)
    model, adversary = renamed_trees(fixture_tree(npz, "init/"))
    trees = {"model": model, "discriminator": adversary}
    settings = {"number": int(npz["domain"]), "silos": 3}
    reply = runner.run(SiloTask("train", "train", 1, 1, 1, trees, settings), State())
    model, adversary = renamed_trees(fixture_tree(npz, "after/"))
    assert_close(reply.tensors, model | adversary)
    assert reply.metrics["loss"] == pytest.approx(float(npz["loss3"]), rel=2e-5)


class Reversal(torch.autograd.Function):
    """The paper's layer, eq. 16: what goes in comes out, and minus lambda times its gradient comes back."""

    @staticmethod
    @override
    def forward(ctx: Any, z: Tensor, reversal: float) -> Tensor:
        ctx.reversal = reversal
        return z.view_as(z)

    @staticmethod
    @override
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return -ctx.reversal * gradients[0], None


def test_the_printed_gradient_is_that_of_a_reversal_layer() -> None:
    torch.manual_seed(0)
    model = Model(nn.Sequential(nn.Linear(6, 5), nn.ReLU()), nn.Linear(5, 4))
    adversary = discriminator(5, 7, 3)
    x, y = torch.randn(9, 6), torch.randint(4, (9,))
    parameters = [*model.parameters(), *adversary.parameters()]
    loss = AdversarialLoss(DANNConfig(reversal=0.3), adversary, number=1)
    found = torch.autograd.grad(loss(model, x, y), parameters)
    z = model.features(x)
    told = adversary(Reversal.apply(z, 0.3))  # type: ignore[no-untyped-call]
    other = functional.cross_entropy(told, torch.full((9,), 1))
    wanted = torch.autograd.grad(functional.cross_entropy(model.classifier(z), y) + other, parameters)
    for one, two in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, two)


def train_job(tmp_path: Path, method: str, silos: int = 2, **config: Any) -> tuple[Tree, Any]:
    names = [f"s{k}" for k in range(silos)]
    members = skewed_silos(tmp_path, {name: [k, k + 1] for k, name in enumerate(names)})
    uniform = {"weights": "uniform"}
    spec = job_spec(method, names, 2, method={"config": config}, aggregation=uniform)
    directory = tmp_path / str(len(list(tmp_path.iterdir())))
    engine = federate(directory, spec, runners(spec, members, tmp_path))
    return model_of(engine), engine.state


def test_without_reversal_the_model_is_fedavgs_and_the_discriminator_learns(tmp_path: Path) -> None:
    fedavg, _ = train_job(tmp_path, "fedavg")
    found, state = train_job(tmp_path, "dann", reversal=0)
    assert found.keys() == fedavg.keys()
    for name, array in fedavg.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-5, atol=1e-6)
    other, first = train_job(tmp_path, "dann", reversal=1)
    assert any(not np.allclose(other[name], array, rtol=1e-4, atol=0) for name, array in fedavg.items())
    told = state.tree("discriminator")
    assert told[DISCRIMINATOR + "4.bias"].shape == (2,)
    assert any(not np.array_equal(told[name], array) for name, array in first.tree("discriminator").items())


def test_a_single_silo_has_nothing_to_be_told_from(tmp_path: Path) -> None:
    fedavg, _ = train_job(tmp_path, "fedavg", silos=1)
    found, _ = train_job(tmp_path, "dann", silos=1, reversal=1)
    for name, array in fedavg.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, "silos: is missing"),
        ({"number": 0}, "silos: is missing"),
        ({"number": 0, "silos": True}, "silos: True is not a whole number"),
        ({"number": False, "silos": 2}, "number: False is not a whole number"),
        ({"number": 2, "silos": 2}, "number: 2 is not a whole number from 0 to 1"),
        ({"number": -1, "silos": 2}, "number: -1 is not a whole number from 0 to 1"),
        ({"number": 0, "silos": 1001}, "silos: 1001 is not a whole number from 1 to 1000"),
        ({"number": 0, "silos": 3}, "number and silos: 0 and 3 are not the place of silos/a"),
        ({"number": 1, "silos": 2}, "number and silos: 1 and 2 are not the place of silos/a"),
    ],
)
def test_a_task_that_gives_no_place_or_anothers_is_refused(
    tmp_path: Path, settings: dict[str, Any], said: str
) -> None:
    spec = job_spec("dann", ["a", "b"])
    (runner,) = runners(spec, skewed_silos(tmp_path, {"a": [0]}), tmp_path).values()
    with pytest.raises(MethodError, match=rf"task settings? {said}"):
        runner.run(SiloTask("train", "train", 1, 1, 1, {"model": {}, "discriminator": {}}, settings), State())


def test_outputs_are_the_jobs_silos_or_where_it_chooses_them_by_label_the_tasks() -> None:
    def outputs(method: Any, settings: dict[str, Any]) -> int:
        return int(method.dimensions(SIGNATURE, settings)["silos"])

    assert outputs(bound_method("dann", silos=3), {"silos": 900}) == 3
    spec = job_spec("dann", 2)
    chosen = spec.model_copy(update={"silos": spec.silos.model_copy(update={"refs": ()})})
    by_label = type(bound_method("dann"))(chosen, DANNConfig())
    assert outputs(by_label, {"silos": 12}) == 12
    assert {outputs(by_label, {"silos": wrong}) for wrong in (0, 10**9, "many", True)} == {1000}
