"""Units that differ between silos, noticed by the order of magnitude of a feature's numbers.

One silo may write grams where another writes kilograms, or 1.234 where another means 1234. Statistics of all silos
together hide that. The typical size of the numbers other than zero differs by the factor between the units; how many of
them are zero, as in a rare diagnosis, makes no difference.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np

from fedsilo.api.text import comma_separated
from fedsilo.data.statistics import FeatureStatistics
from fedsilo.readiness.finding import SEVERITY, ReadinessFinding

UNITS_DIFFER: Final = "UnitsDiffer"

MAX_MAGNITUDES: Final = 1 << 13
"""Features, the first, whose magnitudes are told."""

LARGEST_MAGNITUDE: Final = 1100
"""Largest power of two that a magnitude may state, of either sign: beyond those of float64."""

DISTANT_POWERS: Final = 4
"""Powers of two from which magnitudes count as differing: numbers that are more than 8 to 16 times as large."""

NAMED_FEATURES: Final = 4
"""Features that a finding names."""

Magnitudes = tuple[int | None, ...]
"""Powers of two below which the features' numbers lie on average, by feature; None where too few are known."""


def sizes_of(values: np.ndarray) -> np.ndarray:
    """Absolute values, NaN in place of zeros, in which no unit shows; of the same shape."""
    sizes = np.abs(np.asarray(values, np.float64))
    return np.where(sizes == 0, np.nan, sizes)


def magnitudes_of(sizes: FeatureStatistics, minimum: int) -> Magnitudes:
    """Powers of two of the mean sizes.

    :param sizes: statistics of what `sizes_of` gives.
    :param minimum: values below which nothing is told of a feature.
    """
    told = zip(sizes.mean.tolist(), sizes.count.tolist(), strict=True)
    found = [math.frexp(mean)[1] if count >= max(minimum, 1) else None for mean, count in told]
    return tuple(found[:MAX_MAGNITUDES])


def unit_differences(
    magnitudes: Mapping[str, Magnitudes], names: Sequence[str]
) -> Iterator[ReadinessFinding]:
    """A warning for each two silos between which features differ most, naming these.

    :param magnitudes: of each silo that tells them.
    :param names: of the features.
    """
    between: dict[tuple[str, str], list[str]] = {}
    for feature in range(max(map(len, magnitudes.values()), default=0)):
        told = {
            silo: power
            for silo, powers in magnitudes.items()
            if feature < len(powers) and (power := powers[feature]) is not None
        }
        if told and max(told.values()) - min(told.values()) >= DISTANT_POWERS:
            pair = min(told, key=told.__getitem__), max(told, key=told.__getitem__)
            between.setdefault(pair, []).append(names[feature])
    for (least, most), features in between.items():
        place = f"feature {comma_separated(features, NAMED_FEATURES)}"
        value = f"numbers are about ten times as large in {most} as in {least}, or more"
        remedy = "have all silos write it in one unit, and images with as many bits; look for points among the digits"
        yield ReadinessFinding(UNITS_DIFFER, SEVERITY[UNITS_DIFFER], "all silos", place, value, remedy)
