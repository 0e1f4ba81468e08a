"""Gaussian noise on sums over sampled records: the one mechanism that everything private here is made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from reprlib import repr as shortened
from typing import Any, Self

MAX_TIMES = 10**9
"""How often, at most, records and noise are drawn in one job."""

LEAST_NOISE_MULTIPLIER, MOST_NOISE_MULTIPLIER = 1e-6, 1e6
"""Beyond these everything is revealed, or nothing is learned, and arithmetic leaves the range of floats."""

LEAST_SAMPLING = 1e-12
"""Below the share that one record has of all the records that a silo can count."""


@dataclass(frozen=True)
class Mechanism:
    """Gaussian noise on a sum over records, each of which is in it with some probability, so many times.

    Mironov, Talwar, Zhang, "Rényi Differential Privacy of the Sampled Gaussian Mechanism", 2019. Neighbouring data
    differ by one record that is there or not.

    :param noise_multiplier: standard deviation of the noise over the largest norm that one record adds to the sum.
    :param sampling: probability with which a record is in the sum, independently of all others; 1 for all of them.
    :param times: how often; each time records and noise are drawn anew.
    """

    noise_multiplier: float
    sampling: float = 1.0
    times: int = 1

    def to_dict(self) -> dict[str, Any]:
        """The mechanism as documents and the ledger hold it."""
        return {"noiseMultiplier": self.noise_multiplier, "sampling": self.sampling, "times": self.times}

    @classmethod
    def from_dict(cls, document: Any) -> Self:
        """Read a mechanism that `to_dict` has written.

        :raises ValueError: when it is not such a document, or its figures are out of range.
        """
        if not isinstance(document, Mapping) or document.keys() != {"noiseMultiplier", "sampling", "times"}:
            raise ValueError("mechanism: expected noiseMultiplier, sampling and times")
        noise = _bounded_number(document, "noiseMultiplier", LEAST_NOISE_MULTIPLIER, MOST_NOISE_MULTIPLIER)
        sampling = _bounded_number(document, "sampling", LEAST_SAMPLING, 1.0)
        times = document["times"]
        if type(times) is not int or not 1 <= times <= MAX_TIMES:
            raise ValueError(
                f"mechanism: times {shortened(times)} is not a whole number from 1 to {MAX_TIMES}"
            )
        return cls(noise, sampling, times)


def _bounded_number(document: Mapping[str, Any], name: str, least: float, most: float) -> float:
    value = document[name]
    # Whole numbers of any length can be compared with floats, and NaN is in no range.
    if type(value) not in (int, float) or not least <= value <= most:
        raise ValueError(f"mechanism: {name} {shortened(value)} is not a number from {least:g} to {most:g}")
    return float(value)
