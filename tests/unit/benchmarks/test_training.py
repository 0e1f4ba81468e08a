"""The benchmark of training: both ways do the same, and a difference ends it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from benchmarks import training
from fedsilo.methods.state import Tree
from fedsilo.silo.context import LocalContext


@pytest.mark.parametrize("network", ["mlp", "vgg8_bn", "unet", "transformer"])
def test_the_loop_and_the_trainer_end_with_the_same_weights(network: str) -> None:
    found = training.compare(network, "cpu", "float32", batch=2, pairs=1, seconds=0, steps=2)
    ((loop, ours),) = found.pairs
    assert found.ratio == loop.seconds / ours.seconds
    numbers = re.escape(f"| `{network}` | {found.parameters:,} |")
    assert re.fullmatch(numbers + r" [0-9.]+ \| [0-9.]+ \| \d+ \| \*\*[0-9.]+\*\* \| [0-9.]+ \|", found.row())


def test_a_difference_ends_the_comparison(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = training.train_plain

    def shifted_measurement(
        context: LocalContext, tree: Tree, clock: Callable[[], float]
    ) -> training.TrainingMeasurement:
        measured = plain(context, tree, clock)
        return replace(measured, weights={name: array + 1e-3 for name, array in measured.weights.items()})

    monkeypatch.setattr(training, "train_plain", shifted_measurement)
    with pytest.raises(SystemExit, match=r"mlp: the loop and fedsilo end with different weights: \['"):
        training.compare("mlp", "cpu", "float32", batch=2, pairs=1, seconds=0, steps=2)
