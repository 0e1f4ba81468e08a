"""What training promises holds on every device: the CPU, where each test runs, and a GPU, where there is one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Literal

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from fedsilo.learning.batched import BatchedClient, fit_batched
from fedsilo.learning.devices import pick_device, prepare_torch
from fedsilo.learning.evaluation import evaluate
from fedsilo.learning.examples import Examples
from fedsilo.learning.models import Model, build_model, load_tree, to_tree
from fedsilo.learning.optimizers import OptimizerState
from fedsilo.learning.private_training import ExamplePrivacy, fit_privately
from fedsilo.learning.single_gradients import LAYER_BY_LAYER, SingleGradients
from fedsilo.learning.training import LocalTraining, cross_entropy_loss, fit, seeded_generators
from fedsilo.methods.state import Tree
from fedsilo.privacy.mechanism import Mechanism
from fedsilo.tasks.places import UNSCORED_TARGET, places_loss, places_scores
from tests.unit.learning.specs import data_spec, model_spec

Precision = Literal["float32", "bfloat16", "float16"]

PLAN = LocalTraining(lr=0.05, batch_size=8, momentum=0.9, epochs=2, seed=1)
CLOSE: dict[Precision, float] = {"float32": 1e-4, "bfloat16": 0.2, "float16": 0.05}
"""Largest difference from float32 on the CPU, over the change of the weights, by precision."""


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> Iterator[str]:
    """A device, under the settings that a trainer gives PyTorch."""
    threads = torch.get_num_threads()
    prepare_torch(1)
    yield str(request.param)
    torch.set_num_threads(threads)
    torch.set_deterministic_debug_mode("default")


def network(name: str = "lenet") -> Model:
    return build_model(model_spec(name), data_spec(3, 32, 32, classes=4), seed=0)


def examples(device: str, n: int = 32) -> Examples:
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (n, 3, 32, 32), dtype=np.uint8)
    return Examples.from_arrays(images, random.integers(0, 4, n), device)


def trained_model(device: str, plan: LocalTraining = PLAN, name: str = "lenet") -> Tree:
    model = network(name).to(device)
    fit(model, examples(device), replace(plan, kept=OptimizerState()))
    return {name: np.array(array) for name, array in to_tree(model).items()}


@cache
def reference_model() -> Tree:
    """What the CPU makes of the plan."""
    return trained_model("cpu")


def distance(one: Tree, other: Tree) -> float:
    return math.sqrt(sum(float(np.square(one[name].astype("f8") - other[name]).sum()) for name in other))


@pytest.mark.parametrize(
    ("name", "precision"),
    [*(("lenet", each) for each in CLOSE), pytest.param("vgg9", "float32", marks=pytest.mark.thorough)],
)
def test_the_same_training_gives_the_same_bytes_near_the_cpus(
    device: str, name: str, precision: Precision
) -> None:
    plan = replace(PLAN, precision=precision)
    one, other = trained_model(device, plan, name), trained_model(device, plan, name)
    assert all(one[key].tobytes() == other[key].tobytes() for key in one)
    assert all(array.dtype == np.float32 for array in one.values() if array.dtype.kind == "f")
    if name == "lenet":  # the other one drops out, which each device draws for itself
        reference = reference_model()
        changed = distance(reference, to_tree(network(name)))
        assert distance(one, reference) <= CLOSE[precision] * changed


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("shape", [(5, 4, 7, 9), (5, 4, 12)], ids=["pixels", "tokens"])
def test_the_loss_of_many_places_is_the_same_to_the_bit_and_that_of_the_cpu(
    device: str, shape: tuple[int, ...], weighted: bool
) -> None:
    """PyTorch's own has no deterministic form on a GPU; on the CPU it has the same bytes."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(shape, generator=generator)
    targets = torch.randint(0, 4, (shape[0], *shape[2:]), generator=generator)
    targets[0] = UNSCORED_TARGET
    weights = torch.rand(4, generator=generator) + 0.5 if weighted else None

    def loss_and_gradient(place: str, loss: Callable[..., torch.Tensor]) -> tuple[bytes, torch.Tensor]:
        leaf = logits.to(place, copy=True).requires_grad_()
        value = loss(leaf, targets.to(place), weights if weights is None else weights.to(place))
        torch.autograd.backward(value)
        assert leaf.grad is not None
        return leaf.grad.cpu().numpy().tobytes(), torch.cat([value.reshape(1), leaf.grad.flatten()]).cpu()

    one, other, here = (
        loss_and_gradient(device, places_loss),
        loss_and_gradient(device, places_loss),
        loss_and_gradient("cpu", places_loss),
    )
    assert one[0] == other[0]
    assert torch.allclose(one[1], here[1], rtol=1e-5, atol=1e-7)
    assert (
        here[0]
        == loss_and_gradient("cpu", partial(functional.cross_entropy, ignore_index=UNSCORED_TARGET))[0]
    )
    there, scores = places_scores(logits.to(device), targets.to(device)), places_scores(logits, targets)
    assert all(torch.allclose(there[name].cpu(), scores[name], rtol=1e-5) for name in scores)


def test_what_the_network_draws_follows_from_the_seed_and_disturbs_nothing_else(device: str) -> None:
    torch.manual_seed(7)
    wanted = torch.rand(3, device=device)
    torch.manual_seed(7)
    drawn = []
    for seed in (1, 1, 2):
        with seeded_generators(seed, torch.device(device)):
            drawn.append(nn.functional.dropout(torch.ones(64, device=device)))
    assert torch.equal(drawn[0], drawn[1]) and not torch.equal(drawn[0], drawn[2])
    assert torch.equal(torch.rand(3, device=device), wanted)


def test_a_state_of_the_optimiser_goes_on_from_memory(device: str) -> None:
    kept, model = OptimizerState(), network().to(device)
    fit(model, examples(device), replace(PLAN, epochs=1, kept=kept))
    fresh = network().to(device)
    load_tree(fresh, to_tree(model))
    fit(model, examples(device), replace(PLAN, kept=kept))
    fit(fresh, examples(device), replace(PLAN, kept=OptimizerState()))
    assert kept.trees
    assert distance(dict(to_tree(model)), dict(to_tree(fresh))) > 1e-4, "momentum counts"


def test_scores_are_those_of_the_cpu(device: str) -> None:
    model = network()
    there, here = evaluate(model.to(device), examples(device)), evaluate(model.cpu(), examples("cpu"))
    assert there.correct == here.correct and there.loss == pytest.approx(here.loss, rel=1e-5)


def test_clients_in_a_batch_are_clients_one_by_one(device: str) -> None:
    plans = [replace(PLAN, seed=number) for number in range(3)]
    tree, data = to_tree(network()), examples(device)
    together = fit_batched(network().to(device), [BatchedClient(tree, data, plan) for plan in plans])
    for plan, (found, _) in zip(plans, together, strict=True):
        alone = trained_model(device, plan)
        assert distance(dict(found), alone) <= 1e-3 * distance(alone, dict(tree))


def clipped_gradients(device: str, tried: bool) -> Sequence[torch.Tensor]:
    model, data = network().to(device), examples(device, 6)
    parameters = list(model.parameters())
    sums = [torch.zeros_like(each) for each in parameters]
    with SingleGradients(model, parameters, cross_entropy_loss) as single:
        batch = data.batch(torch.arange(6, device=device))
        if tried:
            assert single.choose(*batch) == LAYER_BY_LAYER
        single.add_clipped(sums, *batch, 0.5)
    return [each.cpu() for each in sums]


def test_clipped_gradients_are_the_same_layer_by_layer_and_one_by_one(device: str) -> None:
    layerwise, one_by_one = clipped_gradients(device, tried=True), clipped_gradients(device, tried=False)
    for one, other in zip(layerwise, one_by_one, strict=True):
        assert torch.allclose(one, other, rtol=1e-3, atol=1e-5)


def test_private_steps_have_the_noise_that_is_charged(device: str) -> None:
    """Without a gradient, since the norm is next to nothing, what a step changes is the noise alone."""
    model, data = network().to(device), examples(device)
    before = {name: np.array(array) for name, array in to_tree(model).items()}
    privacy = ExamplePrivacy(Mechanism(2e6, 0.25, 4), 1e-6, np.random.default_rng(0))
    fit_privately(model, data, LocalTraining(lr=1.0, batch_size=8), privacy, cross_entropy_loss)
    changed = np.concatenate([(np.array(to_tree(model)[name]) - before[name]).ravel() for name in before])
    assert np.std(changed) == pytest.approx(2.0 / 8 * math.sqrt(4), rel=0.02)


def test_the_device_of_a_job_that_leaves_it_open(device: str) -> None:
    assert pick_device("cpu").type == "cpu"
    assert pick_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")
    if device == "cuda":
        assert pick_device("cuda").type == "cuda"
