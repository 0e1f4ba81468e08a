"""Ratio Loss against the released code: its loss and ratios, and which changes count."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fedsilo.methods.components.weighted_loss import class_weighted_loss
from fedsilo.methods.ratio_loss.config import WEIGHTS, RatioLossConfig
from fedsilo.methods.ratio_loss.monitor import (
    CLEAR_SHARE,
    LARGEST_RATIO,
    RATIO_WITHOUT_CHANGE,
    Monitor,
    ratio,
)
from tests import reference_numbers
from tests.federate import drive, job_spec, local_silos, open_engine, runners, skewed_silos
from tests.public_examples import dataset
from tests.unit.methods.harness import ObservedSilo


def test_loss_and_gradient_are_those_of_the_released_code() -> None:
    npz = reference_numbers.load("longtail_losses")
    logits = torch.tensor(npz["logits"], requires_grad=True)
    loss = class_weighted_loss(npz["ratio_alpha"].ravel())(nn.Identity(), logits, torch.tensor(npz["y"]))
    torch.autograd.backward(loss)
    assert loss.item() == pytest.approx(float(npz["ratio_loss"]), rel=2e-5)
    assert logits.grad is not None
    assert np.abs(logits.grad.numpy() - npz["ratio_grad"]).max() <= 2e-5 * np.abs(npz["ratio_grad"]).max()


def test_weights_are_those_of_the_released_code_where_changes_count() -> None:
    npz, config = reference_numbers.load("longtail_losses"), RatioLossConfig()
    changes = npz["ratio_nets"].astype(np.float64) - npz["ratio_w_last"]
    others = (changes.sum(axis=0) - changes) / (len(changes) - 1)
    for label, where in enumerate(npz["ratio_pos"].astype(bool)):
        found = config.alpha + config.beta * ratio(changes[label][where], others[label][where])
        assert found == pytest.approx(float(npz["ratio_out"][label]), rel=2e-4), label


def brute_force(changes: np.ndarray) -> dict[int, float]:
    own: dict[int, list[float]] = {label: [] for label in range(len(changes))}
    others: dict[int, list[float]] = {label: [] for label in range(len(changes))}
    for place in np.ndindex(*changes.shape[1:]):
        of = changes[(slice(None), *place)]
        label = int(of.argmax())
        rest = np.delete(of, label)
        if of[label] > 0 and (np.abs(rest) <= CLEAR_SHARE * of[label]).all():
            own[label].append(of[label])
            others[label].append(rest.mean())
    return {
        label: min(abs(sum(own[label]) / sum(others[label])), LARGEST_RATIO)
        if own[label]
        else RATIO_WITHOUT_CHANGE
        for label in own
    }


def test_changes_count_where_one_class_makes_clearly_the_largest_in_whatever_order_they_come() -> None:
    rng = np.random.default_rng(3)
    changes = rng.standard_normal((4, 30, 20)) + 1
    wanted = brute_force(changes)
    assert len(set(wanted.values())) == 4
    for order in (range(4), [3, 1, 0, 2]):
        monitor = Monitor(changes.shape[1:])
        for label in order:
            monitor.add(label, changes[label])
        assert monitor.ratios() == pytest.approx(wanted)


def test_no_change_is_clear_nowhere_and_one_class_compares_with_nothing() -> None:
    monitor = Monitor((2, 2))
    monitor.add(0, np.zeros((2, 2)))
    assert monitor.ratios() == {}
    monitor.add(2, np.zeros((2, 2)))
    assert monitor.ratios() == {0: RATIO_WITHOUT_CHANGE, 2: RATIO_WITHOUT_CHANGE}
    monitor.add(1, np.ones((2, 2)))
    assert monitor.ratios() == {0: RATIO_WITHOUT_CHANGE, 2: RATIO_WITHOUT_CHANGE, 1: LARGEST_RATIO}


def given_weights(tmp_path: Path, **public: Any) -> list[np.ndarray]:
    """What a silo is told of the classes' weights, round by round."""
    spec = job_spec(
        "ratio-loss",
        ["a", "b"],
        3,
        aggregation={"publicDataset": "public"},
        aggregator={"datasets": [dataset([6], 4, **public)]},
    )
    held = skewed_silos(tmp_path, {"a": [0, 1], "b": [0, 2]})
    watched = {name: ObservedSilo(runner) for name, runner in runners(spec, held, tmp_path).items()}
    engine = open_engine(tmp_path / "aggregator", spec)
    drive(engine, local_silos(tmp_path, watched))
    assert engine.failure is None
    seen = watched["silos/a"].seen
    return [np.array(seen["train", number][0].trees[WEIGHTS][WEIGHTS]) for number in (1, 2, 3)]


def test_the_first_round_is_not_weighted_and_later_ones_are(tmp_path: Path) -> None:
    first, second, third = given_weights(tmp_path)
    assert np.array_equal(first, np.ones(4, np.float32))
    assert (second > 1).all() and not np.array_equal(second, third)


def test_a_class_without_a_public_example_weighs_1(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    _, second, _ = given_weights(tmp_path, present=[0, 1, 2])
    assert second[3] == 1 and (second[:3] > 1).all()
    assert "too few public examples of the classes 3" in caplog.text
