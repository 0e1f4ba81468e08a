"""A step over a batch in parts is the step over the batch."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from fedsilo.learning.batched import BatchedClient, fit_batched
from fedsilo.learning.examples import Examples
from fedsilo.learning.gradients import parts_of
from fedsilo.learning.models import Model, to_tree
from fedsilo.learning.training import LocalTraining, cross_entropy_loss, fit
from tests.unit.learning.specs import training_spec

EXAMPLES = Examples(
    torch.rand(23, 4, generator=torch.Generator().manual_seed(3)).double(), torch.arange(23) % 2
)


def model(*more: torch.nn.Module) -> Model:
    torch.manual_seed(0)
    return Model(torch.nn.Sequential(torch.nn.Flatten(), *more), torch.nn.Linear(4, 2)).double()


def plan(accumulation: int | None) -> LocalTraining:
    training = training_spec(
        batchSize=3,
        localEpochs=2,
        gradientAccumulation=accumulation,
        gradientClip=0.5,
        optimizer={"name": "adam"},
    )
    return LocalTraining.of(training, round=1, rounds=1, seed=5)


def test_the_weights_are_those_of_one_large_batch() -> None:
    in_parts, whole = model(), model()
    assert plan(None).accumulation == 1 and plan(4).batch_size == 12
    sizes: list[int] = []

    def loss(net: Model, features: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        sizes.append(len(labels))
        return cross_entropy_loss(net, features, labels)

    parts = fit(in_parts, EXAMPLES, plan(4), loss=loss)
    once = fit(whole, EXAMPLES, replace(plan(4), accumulation=1))
    assert sizes == [3, 3, 3, 3, 3, 3, 3, 2] * 2
    assert (parts.steps, parts.examples) == (once.steps, once.examples) == (4, 23)
    assert parts.loss == pytest.approx(once.loss, abs=1e-12)
    for name, array in to_tree(whole).items():
        assert np.abs(to_tree(in_parts)[name] - array).max() < 1e-12, name


def test_batches_of_silos_take_the_same_steps() -> None:
    alone = model()
    client = BatchedClient(to_tree(model()), EXAMPLES, plan(4))
    [(tree, report)] = fit_batched(model(), [client])
    assert report.steps == fit(alone, EXAMPLES, plan(4)).steps
    for name, array in to_tree(alone).items():
        assert np.abs(tree[name] - array).max() < 1e-12, name


def test_no_part_is_a_single_example_where_batchnorm_forbids_it() -> None:
    pairs = replace(plan(4), batch_size=8)
    assert [parts_of(n, pairs, skip_single=False) for n in (1, 2, 3, 7, 8)] == [1, 1, 2, 4, 4]
    assert [parts_of(n, pairs, skip_single=True) for n in (2, 3, 7, 8)] == [1, 1, 3, 4]
    sizes: list[int] = []
    norm = torch.nn.BatchNorm1d(4)
    norm.register_forward_hook(lambda _, inputs, __: sizes.append(len(inputs[0])))
    fit(model(norm), EXAMPLES, replace(pairs, epochs=1))
    assert sizes == [2, 2, 2, 2] * 2 + [3, 2, 2]
