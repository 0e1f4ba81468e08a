"""Folding a round's updates into one tree, in about one model of memory.

Silos are added in the order of the job's references, each block of a file mapped, added and unmapped before the
next is touched: the sum is the same bytes whatever order the updates arrived in, and peak memory does not grow with
the number of silos. Whether a sum is finite is checked on the method's new state, in `workflow.py`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from fedsilo.errors import MethodError
from fedsilo.methods.interface import NAMED_PERSONAL_ACCURACY, PERSONAL_ACCURACY, Updates
from fedsilo.methods.state import Tree
from fedsilo.wire import UpdateHeader, open_update

CHUNK_ELEMENTS = 1 << 20
"""Elements that are scaled at a time: enough to be fast, and few beside a model."""


class FoldedUpdates(ABC):
    """The accepted updates of a round and their sum; subclasses know where they are stored.

    :ivar silos: whose updates count, in the order of the job's references.
    """

    silos: tuple[str, ...]

    @abstractmethod
    def samples(self, silo: str) -> int:
        """Sample count that the silo's update states."""

    @abstractmethod
    def metrics(self, silo: str) -> Mapping[str, float]:
        """Scalar metrics of the silo's update."""

    @abstractmethod
    def names(self, silo: str, kind: str) -> tuple[str, ...]:
        """Names of the silo's tensors of that kind."""

    @abstractmethod
    def blocks(self, silo: str, kind: str) -> Iterator[tuple[str, np.ndarray]]:
        """Names and tensors of that kind; each array is valid until the next is read."""

    def weighted_sum(self, kind: str, weights: Mapping[str, float]) -> Tree:
        """Sum over silos of weight times each tensor of that kind.

        Integer tensors (BatchNorm's step counter) are summed in float64 and truncated, as averaging codes do.
        """
        sums: Tree = {}
        types: dict[str, np.dtype] = {}
        for silo in self.silos:
            if silo not in weights:
                continue
            for name, block in self.blocks(silo, kind):
                if name not in sums:
                    types[name] = block.dtype
                    sums[name] = np.zeros(block.shape, dtype=_accumulator(block.dtype))
                _add_scaled(sums[name].reshape(-1), block.reshape(-1), weights[silo])
        return {name: _as_type(total, types[name]) for name, total in sums.items()}

    def tensors(self, silo: str, kind: str) -> Tree:
        """One silo's tensors of that kind, copied."""
        return {name: np.array(block) for name, block in self.blocks(silo, kind)}


class StoredUpdates(FoldedUpdates):
    """Updates in files, of which one block at a time is mapped.

    :param paths: silo -> file, in the order of the job's references.
    """

    def __init__(self, paths: Mapping[str, Path]) -> None:
        self.silos = tuple(paths)
        self._paths = dict(paths)
        self._headers: dict[str, UpdateHeader] = {}
        for silo, path in self._paths.items():
            with open_update(path) as update:
                self._headers[silo] = update.header

    def samples(self, silo: str) -> int:
        """Sample count that the silo's update states."""
        return self._headers[silo].samples

    def metrics(self, silo: str) -> Mapping[str, float]:
        """Scalar metrics of the silo's update."""
        return self._headers[silo].metrics

    def names(self, silo: str, kind: str) -> tuple[str, ...]:
        """Names of the silo's tensors of that kind."""
        return tuple(block.name for block in self._headers[silo].blocks if block.kind == kind)

    def blocks(self, silo: str, kind: str) -> Iterator[tuple[str, np.ndarray]]:
        """Names and tensors of that kind, each unmapped before the next is touched."""
        with open_update(self._paths[silo]) as update:
            for name in update.names(kind):
                with update.map(name) as block:
                    yield name, block


def mean_weights(updates: Updates, rule: str, silos: Sequence[str]) -> dict[str, float]:
    """Weights that add up to one over the given silos: n_k / sum of n (`samples`) or 1 / |K| (`uniform`).

    :raises MethodError: when no silo holds a sample.
    """
    sizes = {silo: updates.samples(silo) if rule == "samples" else 1 for silo in silos}
    total = sum(sizes.values())
    if total == 0:
        raise MethodError(
            f"no silo of {', '.join(silos)} states any sample, so their updates cannot be weighted"
        )
    return {silo: size / total for silo, size in sizes.items()}


def _accumulator(dtype: np.dtype) -> np.dtype:
    if dtype.kind != "f":
        return np.dtype(np.float64)
    return np.dtype(np.float32) if dtype.itemsize < 4 else dtype


def _add_scaled(total: np.ndarray, block: np.ndarray, weight: float) -> None:
    scale = total.dtype.type(weight)
    for start in range(0, total.size, CHUNK_ELEMENTS):
        part = slice(start, start + CHUNK_ELEMENTS)
        total[part] += block[part].astype(total.dtype, copy=False) * scale


def _as_type(total: np.ndarray, dtype: np.dtype) -> np.ndarray:
    if dtype.kind == "f":
        return total.astype(dtype, copy=False)
    # 1e-9 guards a mean of equal integers, whose weights may add up to a hair less than one.
    return np.trunc(total + 1e-9).astype(dtype)


def mean_metrics(updates: Updates) -> dict[str, float]:
    """Mean of each scalar over the silos that sent it, weighted by their sample counts."""
    means = {}
    for name in sorted({name for silo in updates.silos for name in public_metrics(updates, silo)}):
        silos = [silo for silo in updates.silos if name in updates.metrics(silo) and updates.samples(silo)]
        if silos:
            weights = mean_weights(updates, "samples", silos)
            means[name] = sum(weights[silo] * updates.metrics(silo)[name] for silo in silos)
    return means


def public_metrics(updates: Updates, silo: str) -> dict[str, float]:
    """The silo's scalars, less those of its own model, which only `personal_accuracy` reports."""
    own = (PERSONAL_ACCURACY, NAMED_PERSONAL_ACCURACY)
    return {name: value for name, value in updates.metrics(silo).items() if name not in own}


def personal_accuracy(updates: Updates) -> tuple[dict[str, float], dict[str, float]]:
    """What may be reported about the silos' own models: figures over those that have one, and figures by silo.

    The mean is over silos, not samples, and the spread is the standard deviation of the same values. By silo only if
    every one of them permits it: beside the others, the mean would give away the one that does not.
    """
    named = _metric_by_silo(updates, NAMED_PERSONAL_ACCURACY)
    accuracies = named | _metric_by_silo(updates, PERSONAL_ACCURACY)
    if not accuracies:
        return {}, {}
    values = np.array([accuracies[silo] for silo in updates.silos if silo in accuracies])
    metrics = {
        PERSONAL_ACCURACY: float(values.mean()),
        "personal_accuracy_spread": float(values.std()),
        "personal_models": float(len(values)),
    }
    return metrics, named if named.keys() == accuracies.keys() else {}


def _metric_by_silo(updates: Updates, name: str) -> dict[str, float]:
    return {silo: updates.metrics(silo)[name] for silo in updates.silos if name in updates.metrics(silo)}
