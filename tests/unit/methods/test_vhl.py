"""VHL's alignment against the released code and by brute force, the virtual examples, and the whole loss."""

from __future__ import annotations

from itertools import product
from math import exp, log
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from fedsilo.learning.models import Model, to_tree
from fedsilo.learning.seeding import derive_seed
from fedsilo.methods.interface import SiloContext, SiloTask
from fedsilo.methods.vhl.config import VHLConfig
from fedsilo.methods.vhl.noise import VirtualExamples
from fedsilo.methods.vhl.silo import aligned_loss, alignment, contrast
from tests import reference_numbers
from tests.federate import job_spec, runners, skewed_silos


def test_the_alignment_and_its_gradient_are_those_of_the_released_code() -> None:
    npz = reference_numbers.load("vhl_alignment")
    z = torch.tensor(npz["features"], requires_grad=True)
    n, labels = int(npz["n_real"]), torch.tensor(npz["labels"])
    virtual_labels = labels[n:] - int(npz["label_shift"])
    value = alignment(z[:n], z[n:], labels[:n], virtual_labels, float(npz["temperature"]))
    value.backward()  # type: ignore[no-untyped-call]
    assert value.item() == pytest.approx(float(npz["loss"]), rel=2e-5)
    assert z.grad is not None
    np.testing.assert_allclose(z.grad.numpy(), npz["grad"], rtol=1e-4, atol=2e-5)


def by_hand(z: np.ndarray, labels: list[int], temperature: float) -> float:
    """The supervised contrastive loss, pair by pair."""
    unit = z / np.linalg.norm(z, axis=1, keepdims=True)
    found = 0.0
    for i, label in enumerate(labels):
        others = [j for j in range(len(labels)) if j != i]
        positives = [j for j in others if labels[j] == label]
        total = sum(exp(unit[i] @ unit[j] / temperature) for j in others)
        found += sum(log(total) - unit[i] @ unit[j] / temperature for j in positives) / max(len(positives), 1)
    return found / len(labels)


@pytest.mark.parametrize("labels", [[0, 0, 1, 1, 2], [0] * 5, [0, 1, 2, 3, 4], [3]])
def test_a_contrast_is_the_sum_over_pairs_of_a_class(labels: list[int]) -> None:
    z = np.random.default_rng(0).normal(size=(len(labels), 3))
    tensor = torch.tensor(z, requires_grad=True)
    found = contrast(tensor, torch.tensor(labels), 0.5)
    found.backward()  # type: ignore[no-untyped-call]
    assert found.item() == pytest.approx(by_hand(z, labels, 0.5), rel=1e-5)
    assert tensor.grad is not None
    assert tensor.grad.isfinite().all()


def test_features_of_zero_have_a_finite_gradient() -> None:
    z = torch.zeros(4, 3, requires_grad=True)
    contrast(z, torch.tensor([0, 0, 1, 1]), 0.07).backward()  # type: ignore[no-untyped-call]
    assert z.grad is not None
    assert z.grad.isfinite().all()


@pytest.mark.parametrize("shape", [(6,), (3, 8, 8), (1, 28, 28), (3, 2, 5), (1, 6, 6, 6)])
def test_virtual_examples_follow_from_the_seed_and_are_told_apart_by_their_class(
    shape: tuple[int, ...],
) -> None:
    virtual, again, other = (VirtualExamples(shape, 4, 50, seed) for seed in (1, 1, 2))
    drawn = [each.draw(7, torch.Generator().manual_seed(0)) for each in (virtual, again, other)]
    assert drawn[0][0].shape == (7, *shape)
    assert all(torch.equal(one, two) for one, two in zip(drawn[0], drawn[1], strict=True))
    assert not torch.equal(drawn[0][0], drawn[2][0])
    classes, which = torch.tensor(list(product(range(4), range(50)))).T
    examples = virtual.of(classes, which).flatten(1)
    assert examples.min() >= 0
    assert examples.max() <= 1
    centres = torch.stack([examples[classes == c].mean(dim=0) for c in range(4)])
    nearest = torch.cdist(examples, centres).argmin(dim=1)
    assert (nearest == classes).float().mean() > 0.8


def a_silo(tmp_path: Path, name: str, **training: Any) -> SiloContext:
    spec = job_spec("vhl", ["a", "b"], training={"rounds": 1, "device": "cpu"} | training)
    silos = skewed_silos(tmp_path, {"a": [0, 1, 3], "b": [2]}, samples=4)
    return runners(spec, silos, tmp_path)[f"silos/{name}"].context


@pytest.mark.parametrize("mixup", [None, 0.2])
@pytest.mark.parametrize("variant", ["paper", "fedbr"])
def test_the_whole_loss_is_its_three_terms(tmp_path: Path, variant: str, mixup: float | None) -> None:
    """By hand, with the same draws, for two batches of which the second is a single example."""
    silo = a_silo(tmp_path, "a")
    torch.manual_seed(0)
    model = Model(nn.Sequential(nn.Linear(6, 5), nn.ReLU()), nn.Linear(5, 4)).double()
    task = SiloTask("train", "train", 1, 1, 1, {"model": to_tree(model)}, {})
    config = VHLConfig.model_validate(
        {"variant": variant, "virtualWeight": 0.5, "temperature": 0.3, "perClass": 6, "mixup": mixup}
    )
    loss = aligned_loss(silo, task, config)
    seed = derive_seed(silo.spec.training.seed, "virtual examples")
    virtual = VirtualExamples((6,), 4, 6, seed)
    generator = torch.Generator().manual_seed(silo.seed("virtual examples", "train", 1))
    x, y = silo.train.batch(torch.arange(9))
    rng = np.random.default_rng(silo.seed("mixup", "train", 1))
    for n in (9, 1):
        noise, labels = virtual.draw(n, generator)
        part, order = (1.0, np.arange(n)) if mixup is None else (rng.beta(mixup, mixup), rng.permutation(n))
        inputs = part * x[:n].double() + (1 - part) * x[:n].double()[order]
        real, other = model.features(inputs), model.features(noise.double())
        logits = model.classifier(torch.cat([real, other]))
        aligned = (torch.cat([real, other]) if variant == "paper" else logits).detach().numpy()
        wanted = 0.5 * functional.cross_entropy(logits[n:], labels).item()
        wanted += 0.1 * by_hand(aligned[n:], labels.tolist(), 0.3)
        for share, classes in ((part, y[:n]), (1 - part, y[:n][order])):
            wanted += share * functional.cross_entropy(logits[:n], classes).item()
            wanted += share * by_hand(aligned, [*classes.tolist(), *labels.tolist()], 0.3)
        found = loss(model, x[:n].double(), y[:n])
        assert found.item() == pytest.approx(wanted, rel=1e-5)


def test_silos_have_the_same_virtual_examples_and_draw_them_by_themselves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[tuple[Any, ...]] = []

    def record_examples(*of: Any) -> VirtualExamples:
        made.append(of)
        return VirtualExamples(*of)

    monkeypatch.setattr("fedsilo.methods.vhl.silo.VirtualExamples", record_examples)
    model = Model(nn.Linear(6, 5), nn.Linear(5, 4))
    task = SiloTask("train", "train", 1, 1, 1, {"model": to_tree(model)}, {})
    x, y = torch.randn(4, 6), torch.tensor([0, 1, 0, 1])
    values = [
        aligned_loss(a_silo(tmp_path, name, **more), task, VHLConfig())(model, x, y).item()
        for name, more in (("a", {}), ("b", {}), ("a", {"seed": 9}))
    ]
    assert made[0] == made[1] != made[2]
    assert len(set(values)) == 3
