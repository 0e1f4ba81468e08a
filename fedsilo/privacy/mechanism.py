"""Gaussian noise on sums over sampled records: the one mechanism that everything private here is made of."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

MAX_TIMES = 10**9


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
        """As documents and the ledger hold it."""
        return {"noiseMultiplier": self.noise_multiplier, "sampling": self.sampling, "times": self.times}

    @classmethod
    def from_dict(cls, document: Any) -> Self:
        """What `to_dict` wrote.

        :raises ValueError: when it is not such a document, or its figures are out of range.
        """
        if not isinstance(document, Mapping) or document.keys() != {"noiseMultiplier", "sampling", "times"}:
            raise ValueError("mechanism: expected noiseMultiplier, sampling and times")
        noise, sampling, times = (document[name] for name in ("noiseMultiplier", "sampling", "times"))
        if not _is_number(noise) or noise <= 0:
            raise ValueError(f"mechanism: noiseMultiplier {noise!r} is not a number above 0")
        if not _is_number(sampling) or not 0 < sampling <= 1:
            raise ValueError(f"mechanism: sampling {sampling!r} is not a probability above 0")
        if type(times) is not int or not 1 <= times <= MAX_TIMES:
            raise ValueError(f"mechanism: times {times!r} is not a whole number from 1 to {MAX_TIMES}")
        return cls(float(noise), float(sampling), times)


def _is_number(value: object) -> bool:
    return type(value) in (int, float) and math.isfinite(value)  # type: ignore[arg-type]
