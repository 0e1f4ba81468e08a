"""Prometheus metrics say what a process knows, as series whose values are read when they are scraped.

A process declares all its series in one table and reads their values from the state that it has anyway. So nothing is
counted twice, a restarted process continues from its files, and the series of what no longer exists disappear. The
format is Prometheus' text exposition, by its official client.

Each process also answers what it is and what it uses: `fedsilo_build_info`, and the client's `process_...` series.
"""

from __future__ import annotations

import shutil
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import metadata
from itertools import accumulate
from pathlib import Path
from typing import Literal, NamedTuple

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from typing_extensions import override

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

JOB = ("job_namespace", "job_name")
"""Labels of what belongs to a job. Prometheus itself sets `job` and `namespace`: those of the scraped target."""


PREFIX = "fedsilo_"
FORMER_PREFIX = "federated_"
"""What names began with before; with `Series.renamed` it goes when 0.2.0 does."""


@dataclass(frozen=True)
class Series:
    """One metric of a process with its labels.

    :param name: with its unit; that of a counter ends in `_total`.
    :param help: one sentence.
    :param bounds: upper bounds of a histogram's buckets, but for the infinite one.
    :param renamed: whether dashboards may know it by the former prefix, under which it is served, too.
    """

    name: str
    kind: Literal["gauge", "counter", "histogram"]
    labels: tuple[str, ...]
    help: str
    bounds: tuple[float, ...] = ()
    renamed: bool = True

    @property
    def former_name(self) -> str | None:
        """Its name in dashboards and alerts that were written before the prefix was the product's."""
        if not self.renamed or not self.name.startswith(PREFIX):
            return None
        return FORMER_PREFIX + self.name.removeprefix(PREFIX)


BUILD_SERIES = Series(
    "fedsilo_build_info",
    "gauge",
    ("program", "version"),
    "1 for the program that answers, in its version.",
    renamed=False,
)


@dataclass(frozen=True)
class VolumeSeries:
    """How full the volume of a directory is: two series, which an alert divides."""

    free: Series
    size: Series

    def read(self, labels: Sequence[str], directory: Path) -> Iterator[Sample]:
        """The bytes of a volume now, and none of a directory that cannot be looked at."""
        with suppress(OSError):
            usage = shutil.disk_usage(directory)
            yield Sample(self.free, labels, usage.free)
            yield Sample(self.size, labels, usage.total)


def volume_series(program: str, labels: tuple[str, ...]) -> VolumeSeries:
    """Series of the volume that a program keeps its files on."""
    names = f"{PREFIX}{program}_volume"
    return VolumeSeries(
        Series(
            f"{names}_free_bytes", "gauge", labels, f"Bytes free on the {program}'s volume.", renamed=False
        ),
        Series(f"{names}_size_bytes", "gauge", labels, f"Bytes of the {program}'s volume.", renamed=False),
    )


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

    :param program: what answers, such as `operator`: the answer also says its version and what the process uses.
    :param declared: all other series of the process; each appears in the answer, even while it has no value.
    :param read: their values now.
    """

    def __init__(
        self, program: str, declared: Sequence[Series], read: Callable[[], Iterable[Sample]]
    ) -> None:
        self._build = Sample(BUILD_SERIES, (program, metadata.version("fedsilo")), 1)
        self._declared = (BUILD_SERIES, *declared)
        self._read = read
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    def text(self) -> bytes:
        """The exposition as text.

        :raises KeyError: for a value of a series that is not declared.
        """
        return bytes(generate_latest(self._registry))

    @override
    def collect(self) -> Iterator[Metric]:
        families = {series: _families(series) for series in self._declared}
        for series, labels, value in (self._build, *self._read()):
            for family in families[series]:
                _add(family, labels, value)
        for both in families.values():
            yield from both

    def describe(self) -> Iterable[Metric]:
        """Describe no metric, since the registry has one collector, whose names cannot clash."""
        return ()


Family = GaugeMetricFamily | CounterMetricFamily | HistogramMetricFamily


def _families(series: Series) -> list[Family]:
    """The series by its name, and by its former one."""
    types = {"gauge": GaugeMetricFamily, "counter": CounterMetricFamily, "histogram": HistogramMetricFamily}
    new: Callable[..., Family] = types[series.kind]
    found = [new(series.name, series.help, labels=series.labels)]
    if former := series.former_name:
        found.append(new(former, f"Former name of {series.name}.", labels=series.labels))
    return found


def _add(family: Family, labels: Sequence[str], value: float | Distribution) -> None:
    if isinstance(family, HistogramMetricFamily):
        assert isinstance(value, Distribution)
        bounds = [*map(str, value.bounds), "+Inf"]
        family.add_metric(labels, list(zip(bounds, accumulate(value.counts), strict=True)), value.total)
    else:
        assert not isinstance(value, Distribution)
        family.add_metric(labels, value)
