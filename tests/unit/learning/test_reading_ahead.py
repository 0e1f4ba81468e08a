"""Batches that are read while others are learned from: the same bytes, in order, and no more at once than is said."""

from __future__ import annotations

import threading
from contextlib import closing
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch

from fedsilo.data.sources import LazyFeatures
from fedsilo.errors import DataInvalid
from fedsilo.learning import examples as module
from fedsilo.learning.batched import BatchedClient, fit_batched
from fedsilo.learning.evaluation import evaluate, features_of
from fedsilo.learning.examples import Examples
from fedsilo.learning.models import Model, build_model, to_tree
from fedsilo.learning.training import LocalTraining, fit
from tests.unit.learning.specs import data_spec, model_spec

RNG = np.random.RandomState(0)
FEATURES = RNG.randint(0, 256, (50, 1, 8, 8)).astype(np.uint8)
LABELS = RNG.randint(0, 4, 50)


@dataclass
class CountedSource:
    """An array that notes the items that have been read, and by which threads; item 40 is damaged where it says so."""

    features: np.ndarray
    damaged: bool = False
    reads: list[list[int]] = field(default_factory=list)
    threads: set[int] = field(default_factory=set)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.features.shape

    @property
    def dtype(self) -> np.dtype:
        return self.features.dtype

    def read(self, items: np.ndarray) -> np.ndarray:
        self.reads.append(items.tolist())
        self.threads.add(threading.get_ident())
        if self.damaged and 40 in items:
            raise DataInvalid("item 40: is damaged; mend it")
        found: np.ndarray = self.features[items]
        return found


def examples(source: CountedSource | None = None) -> Examples:
    if source is None:
        return Examples.from_arrays(FEATURES, LABELS, "cpu")
    return Examples.from_arrays(LazyFeatures(source, source.shape[1:], "scans"), LABELS, "cpu")


def network() -> Model:
    return build_model(model_spec("mlp"), data_spec(1, 8, 8, classes=4), seed=0)


PLAN = LocalTraining(lr=0.1, batch_size=8, epochs=2, momentum=0.9, seed=3)


def test_training_and_scores_are_those_of_features_in_memory() -> None:
    source = CountedSource(FEATURES)
    held, stored = examples(), examples(source)
    results = []
    for data in (held, stored):
        model = network()
        report = fit(model, data, PLAN)
        scores = evaluate(model, data, batch_size=7), features_of(model, data, 9).tobytes()
        results.append((report, scores, to_bytes(to_tree(model))))
    assert results[0] == results[1]
    assert threading.get_ident() not in source.threads
    assert stored.features.equal(held.features)
    chosen = np.array([4, 7, 4])
    assert stored.take(chosen).features.equal(held.take(chosen).features)


def test_several_clients_at_once_read_what_they_learn() -> None:
    trained = []
    for data in (examples(), examples(CountedSource(FEATURES))):
        clients = [BatchedClient(to_tree(network()), data, PLAN) for _ in range(2)]
        trained.append([to_bytes(tree) for tree, _ in fit_batched(network(), clients)])
    assert trained[0] == trained[1]


def to_bytes(tree: dict[str, np.ndarray]) -> bytes:
    return b"".join(array.tobytes() for array in tree.values())


def test_no_more_is_read_than_the_order_asks_for_and_than_may_be_in_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(4)))
    monkeypatch.setattr(module, "READ_AHEAD_BYTES", 3 * 5 * 64)  # three batches
    source = CountedSource(FEATURES)
    order = torch.split(torch.arange(50), 5)
    with closing(examples(source).stream(order)) as stream:
        for taken, (index, features, labels) in enumerate(stream, start=1):
            assert len(source.reads) <= taken + 3
            assert labels.tolist() == LABELS[index].tolist()
            assert torch.equal(features, torch.tensor(FEATURES[index] / np.float32(255)))
    assert sorted(source.reads) == [index.tolist() for index in order]


def test_a_stream_that_is_left_leaves_no_thread() -> None:
    before = threading.active_count()
    stream = examples(CountedSource(FEATURES)).stream(iter(torch.split(torch.arange(50), 5)))
    next(stream)
    stream.close()
    assert threading.active_count() == before


def test_training_ends_with_the_fault_of_what_it_reads() -> None:
    before = threading.active_count()
    with pytest.raises(DataInvalid, match=r"^dataset 'scans': item 40: is damaged"):
        fit(network(), examples(CountedSource(FEATURES, damaged=True)), PLAN)
    assert threading.active_count() == before
