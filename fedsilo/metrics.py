"""Prometheus metrics say what a process knows, as series whose values are read when they are scraped.

A process declares all its series in one table and reads their values from the state that it has anyway. So nothing is
counted twice, a restarted process continues from its files, and the series of what no longer exists disappear. The
format is Prometheus' text exposition, by its official client.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Literal, NamedTuple

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from typing_extensions import override

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

JOB = ("job_namespace", "job_name")
"""Labels of what belongs to a job. Prometheus itself sets `job` and `namespace`: those of the scraped target."""


@dataclass(frozen=True)
class Series:
    """One metric of a process with its labels.

    :param name: with its unit; that of a counter ends in `_total`.
    :param help: one sentence.
    :param bounds: upper bounds of a histogram's buckets, but for the infinite one.
    """

    name: str
    kind: Literal["gauge", "counter", "histogram"]
    labels: tuple[str, ...]
    help: str
    bounds: tuple[float, ...] = ()


@dataclass
class Distribution:
    """What a histogram counts.

    :param bounds: those of its series.
    """

    bounds: tuple[float, ...]
    total: float = 0.0
    counts: list[int] = field(default_factory=list)
    """Values in each bucket, the last being the infinite one."""

    def __post_init__(self) -> None:
        self.counts = [0] * (len(self.bounds) + 1)

    def add(self, value: float) -> None:
        """Count a value in its bucket, and add it to the total."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


class Sample(NamedTuple):
    """The value of a series under its labels, which are in the order of its declaration."""

    series: Series
    labels: Sequence[str]
    value: float | Distribution


class Exposition(Collector):
    """What `/metrics` answers with.

    :param declared: all series of the process; each appears in the answer, even while it has no value.
    :param read: their values now.
    """

    def __init__(self, declared: Sequence[Series], read: Callable[[], Iterable[Sample]]) -> None:
        self._declared = declared
        self._read = read
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def text(self) -> bytes:
        """The exposition as text.

        :raises KeyError: for a value of a series that is not declared.
        """
        return bytes(generate_latest(self._registry))

    @override
    def collect(self) -> Iterator[Metric]:
        families = {series: _family(series) for series in self._declared}
        for series, labels, value in self._read():
            _add(families[series], labels, value)
        yield from families.values()

    def describe(self) -> Iterable[Metric]:
        """Describe no metric, since the registry has one collector, whose names cannot clash."""
        return ()


Family = GaugeMetricFamily | CounterMetricFamily | HistogramMetricFamily


def _family(series: Series) -> Family:
    types = {"gauge": GaugeMetricFamily, "counter": CounterMetricFamily, "histogram": HistogramMetricFamily}
    family: Family = types[series.kind](series.name, series.help, labels=series.labels)
    return family


def _add(family: Family, labels: Sequence[str], value: float | Distribution) -> None:
    if isinstance(family, HistogramMetricFamily):
        assert isinstance(value, Distribution)
        bounds = [*map(str, value.bounds), "+Inf"]
        family.add_metric(labels, list(zip(bounds, accumulate(value.counts), strict=True)), value.total)
    else:
        assert not isinstance(value, Distribution)
        family.add_metric(labels, value)
