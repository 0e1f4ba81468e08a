"""Statistics of the features that silos hold: what each of them sends, and what they are together.

Blocks `count`, `missing` (int64), `mean` and `m2` (float64) have a value for each column of a table or channel of
images, `histogram/<feature>` one for each part. Nothing is sent of a feature with fewer values than the silo's minimum,
and 0 for a part of a histogram, unless only sums over silos are seen. What is left out cannot be had from the rest
either: neither from the number of missing values, nor from a feature's count less its other parts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from fedsilo.api.data import DataSpec
from fedsilo.api.job import FederatedJobSpec
from fedsilo.data.statistics import FeatureStatistics, histogram, merge_statistics
from fedsilo.errors import MethodError
from fedsilo.methods.interface import Reply, SiloContext
from fedsilo.methods.state import Tree
from fedsilo.methods.step import TARGETS, Payload
from fedsilo.wire.combine import BlockSum, CountedMean, SquaredDeviations

if TYPE_CHECKING:
    from fedsilo.learning.examples import Examples

KIND = "feature_statistics"

Edges = Mapping[int, Sequence[float]]
"""Feature -> the edges of its histogram, which the job fixes."""

PIECE_NUMBERS = 1 << 20
"""Numbers that are in memory in double precision at a time."""


def payloads(data: DataSpec, edges: Edges) -> tuple[Payload, ...]:
    """What a silo sends."""
    histograms = {f"histogram/{feature}": (len(edges[feature]) + 1,) for feature in edges}
    return (
        *statistics_payloads("", data.input_shape[0]),
        *(Payload(KIND, name, shape, "int64", combine=BlockSum()) for name, shape in histograms.items()),
    )


def statistics_payloads(prefix: str, size: int) -> tuple[Payload, ...]:
    """Statistics of so many features or targets, by these names with something before them."""
    count, mean = f"{prefix}count", f"{prefix}mean"
    return (
        Payload(KIND, count, (size,), "int64", combine=BlockSum()),
        Payload(KIND, f"{prefix}missing", (size,), "int64", combine=BlockSum()),
        Payload(KIND, mean, (size,), "float64", combine=CountedMean(count)),
        Payload(KIND, f"{prefix}m2", (size,), "float64", combine=SquaredDeviations(mean)),
    )


def feature_statistics(silo: SiloContext, edges: Edges) -> Reply:
    """The statistics of the silo's training examples, as a model is given them, less what too few values say."""
    minimum = silo.min_samples_per_feature * prod(silo.spec.data.input_shape[1:])
    found, parts = statistics_of(silo.train, silo.spec.data, edges)
    enough = found.count >= minimum
    tensors: Tree = {
        "count": np.where(enough, found.count, 0),
        "missing": np.where(enough | (found.count == 0), found.missing, 0),
        "mean": np.where(enough, found.mean, 0.0),
        "m2": np.where(enough, found.m2, 0.0),
    }
    per_part = min_values_per_part(silo.spec, silo.min_samples_per_feature)
    for feature, counts in parts.items():
        tensors[f"histogram/{feature}"] = large_parts(counts, per_part) * enough[feature]
    return Reply(tensors, samples=len(silo.train))


def large_parts(counts: np.ndarray, minimum: int) -> np.ndarray:
    """Counts of a histogram's parts, with 0 for those below a minimum, of which no less than that may be left out.

    What is left out is the count of the feature less the parts that are there: of a single small part that would be its
    count, so that the smallest of the others is left out with it.
    """
    found = np.where(counts >= minimum, counts, 0)
    if 0 < counts.sum() - found.sum() < minimum and found.any():
        shown = np.flatnonzero(found)
        found[shown[found[shown].argmin()]] = 0
    return found


def min_values_per_part(spec: FederatedJobSpec, samples: int) -> int:
    """Values that a part of a histogram must have in a silo.

    Where only sums are seen it is the total that must reach the job's minimum (`pool_histograms`), unless the silo's
    own minimum is larger, which the aggregator does not know.

    :param samples: the larger of the job's and the silo's minimum.
    """
    if spec.aggregation.secure and samples <= spec.privacy.min_samples_per_class:
        return 1
    return samples * prod(spec.data.input_shape[1:])


def statistics_of(
    examples: Examples, data: DataSpec, edges: Edges
) -> tuple[FeatureStatistics, dict[int, np.ndarray]]:
    """Statistics of examples as a model is given them, and the histograms of some features, by feature."""
    found = FeatureStatistics.none(data.input_shape[0])
    parts = {feature: np.zeros(len(edges[feature]) + 1, np.int64) for feature in edges}
    for piece in _pieces(examples, PIECE_NUMBERS // prod(data.input_shape)):
        found = found.merge(FeatureStatistics.of(piece))
        for feature in edges:
            parts[feature] += histogram(piece[:, feature], edges[feature])
    return found, parts


def pool_examples(parts: Sequence[Examples], data: DataSpec) -> FeatureStatistics:
    """The statistics of all silos' examples together, where one process holds them."""
    return merge_statistics((statistics_of(part, data, {})[0] for part in parts), data.input_shape[0])


def pool(sent: Iterable[tuple[str, Tree]], data: DataSpec) -> FeatureStatistics:
    """The statistics of all silos' values together, added in the order in which they come.

    :param sent: a silo's name, and its tensors of this kind.
    :raises MethodError: naming a silo whose numbers are no statistics.
    """
    return merge_statistics((_statistics_of(silo, tree) for silo, tree in sent), data.input_shape[0])


def pool_targets(sent: Iterable[tuple[str, Tree]], outputs: int) -> FeatureStatistics:
    """The statistics of all silos' targets together; arguments and errors as those of `pool`."""
    return merge_statistics((_statistics_of(silo, tree, TARGETS) for silo, tree in sent), outputs)


def target_statistics(silo: SiloContext) -> Tree:
    """Blocks of statistics of the silo's targets, (n, outputs), less what too few examples say."""
    found = FeatureStatistics.of(silo.train.labels.cpu().numpy())
    enough = found.count >= silo.min_samples_per_feature
    names = [field.name for field in fields(FeatureStatistics)]
    return {
        TARGETS + name: np.where(enough, (one := getattr(found, name)), np.zeros_like(one)) for name in names
    }


def pool_histograms(sent: Iterable[tuple[str, Tree]], edges: Edges, spec: FederatedJobSpec) -> Tree:
    """The sums of the silos' histograms, by block name, without what totals below the job's minimum would tell.

    :param sent: a silo's name, and its tensors of this kind.
    """
    names, trees = [f"histogram/{feature}" for feature in edges], [tree for _, tree in sent]
    totals = {name: np.asarray(sum(tree[name] for tree in trees), np.int64) for name in names}
    least = spec.privacy.min_samples_per_class * prod(spec.data.input_shape[1:])
    return {name: large_parts(total, least) for name, total in totals.items()}


def _statistics_of(silo: str, tree: Tree, prefix: str = "") -> FeatureStatistics:
    for name in (prefix + "count", prefix + "missing", prefix + "m2"):
        if (tree[name] < 0).any():
            place = int(np.argmax(tree[name] < 0))
            raise MethodError(
                f"silo {silo}: {name} of feature {place} is {tree[name][place]:g}; none is below 0"
            )
    return FeatureStatistics(*(tree[prefix + field.name] for field in fields(FeatureStatistics)))


def _pieces(examples: Examples, size: int) -> Iterator[np.ndarray]:
    """The features of some examples after those of others, (n, *input shape)."""
    import torch

    index = torch.arange(len(examples), device=examples.labels.device)
    for part in torch.split(index, max(size, 1)):
        yield examples.batch(part)[0].cpu().numpy()
