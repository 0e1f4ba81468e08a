"""Batches drawn by person: each person with the stated probability, and with one example, whatever there are."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from fedsilo.learning.examples import Examples
from fedsilo.learning.models import Model
from fedsilo.learning.private_training import ExamplePrivacy, PoissonSampling, fit_privately
from fedsilo.learning.training import LocalTraining, cross_entropy_loss
from fedsilo.privacy.mechanism import Mechanism


def examples_of(persons: list[int]) -> Examples:
    rng = np.random.default_rng(0)
    images = rng.normal(size=(len(persons), 1, 4, 4)).astype(np.float32)
    examples = Examples.from_arrays(images, rng.integers(0, 3, len(persons)), "cpu")
    return replace(examples, persons=np.array(persons))


def weight_change(examples: Examples, norm: float = 0.5, batch: int = 4) -> np.ndarray:
    """By how much a step without noise moves the weights, if all persons are in its batch."""
    torch.manual_seed(0)
    model = Model(nn.Flatten(), nn.Linear(16, 3))
    before = [parameter.detach().clone() for parameter in model.parameters()]
    privacy = ExamplePrivacy(Mechanism(1e-12), norm, np.random.default_rng(0))
    fit_privately(
        model, examples, LocalTraining(lr=1.0, batch_size=batch, max_steps=1), privacy, cross_entropy_loss
    )
    now = [parameter.detach() for parameter in model.parameters()]
    return torch.cat([(a - b).flatten() for a, b in zip(now, before, strict=True)]).double().numpy()


def test_a_person_with_a_thousand_copies_moves_the_model_as_one_with_a_single() -> None:
    single = examples_of([0, 1, 2, 3])
    many = single.take(np.array([0, 1, 2] + [3] * 1000))
    assert weight_change(many) == pytest.approx(weight_change(single), abs=1e-6)


@pytest.mark.parametrize("examples", [1, 1000])
def test_a_person_moves_the_model_by_one_clip_norm(examples: int) -> None:
    """Batches of four persons, of whom one is there or not: its examples are huge, so that its gradient is clipped."""
    whole = examples_of([0, 1, 2, 3] + [3] * (examples - 1))
    pool = whole.features.clone()
    pool[3:] *= 1e4
    whole = replace(whole, pool=pool)
    without = replace(whole, persons=None).take(np.arange(3))
    # Divided by the batch of four in both.
    three = weight_change(replace(without, persons=np.arange(3)), batch=3) * 3 / 4
    assert np.linalg.norm(weight_change(whole) - three) == pytest.approx(0.5 / 4, rel=1e-4)


def test_each_person_is_in_a_batch_with_the_stated_probability_whatever_the_number_of_examples() -> None:
    persons = np.repeat(np.arange(50), np.arange(50) * 4 + 1)
    shuffled = np.random.default_rng(1).permutation(persons)
    sampled, random = PoissonSampling.of(examples_of(shuffled.tolist())), np.random.default_rng(2)
    assert len(sampled) == 50
    times, sizes = np.zeros(50), []
    for _ in range(4000):
        drawn = shuffled[sampled.draw(0.2, random)]
        assert len(np.unique(drawn)) == len(drawn)
        times[drawn] += 1
        sizes.append(len(drawn))
    # The deviation of a person's rate over 4000 draws is 0.0063.
    assert times / 4000 == pytest.approx(np.full(50, 0.2), abs=0.03)
    assert np.var(sizes) == pytest.approx(50 * 0.2 * 0.8, rel=0.1)


def test_each_example_of_a_person_is_drawn_as_often() -> None:
    sampled, random = PoissonSampling.of(examples_of([0, 1, 0, 0, 1])), np.random.default_rng(3)
    places = np.concatenate([sampled.draw(1.0, random) for _ in range(6000)])
    assert np.bincount(places) / 6000 == pytest.approx(
        np.array([1 / 3, 1 / 2, 1 / 3, 1 / 3, 1 / 2]), abs=0.03
    )


def test_examples_of_nobody_are_drawn_as_before() -> None:
    examples = replace(examples_of([0] * 40), persons=None)
    drawn = PoissonSampling.of(examples).draw(0.3, np.random.default_rng(4))
    assert (drawn == np.flatnonzero(np.random.default_rng(4).random(40) < 0.3)).all()


def test_an_epoch_is_of_persons() -> None:
    examples = examples_of([0, 1, 2, 3] * 100)
    model = Model(nn.Flatten(), nn.Linear(16, 3))
    privacy = ExamplePrivacy(Mechanism(1, 2 / 4, 6), 1, np.random.default_rng(0))
    plan = LocalTraining(lr=1e-3, batch_size=2, epochs=3)
    assert fit_privately(model, examples, plan, privacy, cross_entropy_loss).steps == 6


def test_records_and_their_parts() -> None:
    examples = examples_of([5, 7, 5, 5])
    assert (len(examples), examples.records) == (4, 2)
    assert examples.parts.tolist() == pytest.approx([1 / 3, 1, 1 / 3, 1 / 3])
    assert examples.take(np.array([0, 1])).parts.tolist() == [1, 1]
    plain = replace(examples, persons=None)
    assert (plain.records, plain.parts.tolist()) == (4, [1, 1, 1, 1])
