"""What is held in memory of features that stay in their files depends on the batch, and not on how many there are."""

from __future__ import annotations

import threading
import weakref
from dataclasses import dataclass, field

import numpy as np
import pytest

from fedsilo.data.sources import LazyFeatures
from fedsilo.learning import evaluation
from fedsilo.learning import examples as module
from fedsilo.learning.evaluation import evaluate
from fedsilo.learning.examples import Examples
from fedsilo.learning.models import build_model
from fedsilo.learning.training import LocalTraining, fit
from tests.unit.learning.specs import data_spec, model_spec

WIDTH = 256
ITEM_BYTES = 4 * WIDTH
BATCH_EXAMPLES = 8
READERS = 2


@dataclass
class HeldRows:
    """Rows made on the fly, which counts the bytes of those that are still held by anybody."""

    count: int
    held: int = 0
    most: int = 0
    read_bytes: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.count, WIDTH)

    @property
    def dtype(self) -> np.dtype:
        return np.dtype(np.float32)

    def read(self, items: np.ndarray) -> np.ndarray:
        rows = np.repeat(items.astype(np.float32)[:, np.newaxis] % 7, WIDTH, axis=1)
        self._note(rows.nbytes)
        weakref.finalize(rows, self._note, -rows.nbytes)
        return rows

    def _note(self, change: int) -> None:
        with self._lock:
            self.held += change
            self.read_bytes += max(change, 0)
            self.most = max(self.most, self.held)


def most_held(count: int) -> int:
    """Bytes at the worst moment of two passes of training and one of scoring."""
    rows = HeldRows(count)
    features = LazyFeatures(rows, (WIDTH,), "large")
    examples = Examples.from_arrays(features, np.arange(count) % 4, "cpu")
    model = build_model(model_spec("mlp"), data_spec(WIDTH, classes=4), seed=0)
    fit(model, examples, LocalTraining(lr=0.1, batch_size=BATCH_EXAMPLES, epochs=2))
    evaluate(model, examples)
    assert rows.read_bytes == 3 * count * ITEM_BYTES
    return rows.most


@pytest.mark.thorough
def test_what_is_held_does_not_grow_with_the_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(READERS)))
    monkeypatch.setattr(module, "READ_AHEAD_BYTES", 2 * BATCH_EXAMPLES * ITEM_BYTES)
    monkeypatch.setattr(evaluation, "BATCH_BYTES", 2 * BATCH_EXAMPLES * ITEM_BYTES)
    # The batch that is learned from, those that are read ahead, and the one whose reader has not let go of it yet.
    most = (READERS + 3) * 2 * BATCH_EXAMPLES * ITEM_BYTES
    for count in (2_000, 10_000):
        assert most_held(count) <= most < count * ITEM_BYTES / 10
