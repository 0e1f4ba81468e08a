"""What private steps were really taken in a job, counted where samples and noise are drawn, and what they come to.

Nothing here reads what fedsilo says of itself: neither its mechanisms nor its accounting. A recorder notes each sample
that is drawn of a silo's records, by which rate, and each deviation of noise; an accountant of `dp-accounting`, on its
own fine grid, composes what was noted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent
from dp_accounting.pld import PLDAccountant
from torch import Tensor
from typing_extensions import override

from fedsilo.learning import private_training
from fedsilo.learning.noise import NoiseSource
from fedsilo.learning.private_training import PoissonSampling
from fedsilo.silo.secret import Secret

GRID = 5e-5
"""Width of the grid of the accountant's privacy losses."""

Release = tuple[float, float]
"""Noise multiplier and sampling rate of one release."""


@dataclass
class Draws:
    """What was drawn from one generator: one task of one silo.

    :ivar rates: of each sample of records.
    :ivar deviations: of each draw of noise, and how many samples there were before it.
    """

    rates: list[float] = field(default_factory=list)
    deviations: list[tuple[int, float]] = field(default_factory=list)


class _NotedGenerator:
    """A generator whose draws are noted."""

    def __init__(self, random: np.random.Generator, draws: Draws, keys: dict[Any, Draws]) -> None:
        self._random, self.draws, self._keys = random, draws, keys

    def __getattr__(self, name: str) -> Any:
        return getattr(self._random, name)

    def normal(self, mean: float, deviation: float, shape: Any = None) -> Any:
        self.draws.deviations.append((len(self.draws.rates), float(deviation)))
        return self._random.normal(mean, deviation, shape)

    def bytes(self, length: int) -> Any:
        """A key, by which a source of noise is found to be of this task."""
        key = self._random.bytes(length)
        self._keys[key] = self.draws
        return key


@dataclass
class RecordedDraws:
    """All draws of a job.

    :param gradient_norm: what gradients are clipped to.
    :param feature_norm: what features of statistics are clipped to.
    :ivar silos: a silo's secret, and the draws of each of its tasks.
    """

    gradient_norm: float
    feature_norm: float
    silos: list[tuple[Secret, list[Draws]]] = field(default_factory=list)

    def draws_of(self, secret: Secret) -> list[Draws]:
        """Draws of the silo that has this secret."""
        for other, draws in self.silos:
            if other is secret:
                return draws
        self.silos.append((secret, []))
        return self.silos[-1][1]

    def releases(self, secret: Secret) -> Counter[Release]:
        """How often each kind of release was made of the records of the silo that has this secret."""
        found = Counter[Release]()
        for draws in self.draws_of(secret):
            if draws.rates:
                found.update(self._steps(draws))
            elif draws.deviations:
                found[self._statistics(draws), 1.0] += 1
        return found

    def _steps(self, draws: Draws) -> Iterator[Release]:
        """Every sample with the noise that follows it, which is the same for all parameters."""
        for number, rate in enumerate(draws.rates, start=1):
            (deviation,) = {deviation for place, deviation in draws.deviations if place == number}
            yield deviation / self.gradient_norm, rate

    def _statistics(self, draws: Draws) -> float:
        """Sums of which an example adds 1, F and F^2 at most, each with its own noise: together one release."""
        deviations = sorted({deviation for _, deviation in draws.deviations})
        parts = [self.feature_norm**power / deviation for power, deviation in enumerate(deviations)]
        return float(sum(part**2 for part in parts) ** -0.5)

    def epsilon(self, secret: Secret, delta: float) -> float:
        """What a silo's releases come to together."""
        accountant = PLDAccountant(value_discretization_interval=GRID)
        for (noise, rate), times in self.releases(secret).items():
            gaussian = GaussianDpEvent(noise)
            accountant.compose(gaussian if rate == 1 else PoissonSampledDpEvent(rate, gaussian), times)
        return float(accountant.get_epsilon(delta))


@contextmanager
def recording(gradient_norm: float, feature_norm: float) -> Iterator[RecordedDraws]:
    """Note what all silos of this process draw; the norms are the job's."""
    recorded = RecordedDraws(gradient_norm, feature_norm)
    keys = dict[bytes, Draws]()
    generator, draw = Secret.generator, PoissonSampling.draw

    def noted_generator(secret: Secret, *purpose: str | int) -> Any:
        draws = Draws()
        recorded.draws_of(secret).append(draws)
        return _NotedGenerator(generator(secret, *purpose), draws, keys)

    def noted_draw(sampling: PoissonSampling, rate: float, random: Any) -> np.ndarray:
        random.draws.rates.append(rate)
        return draw(sampling, rate, random)

    class NotedSource(NoiseSource):
        """A source whose draws are noted as those of the task that its key is of."""

        def __init__(self, key: bytes, deviation: float) -> None:
            super().__init__(key, deviation)
            self._draws, self._noted = keys[key], float(deviation)

        @override
        def pieces(self, count: int) -> Iterator[Tensor]:
            self._draws.deviations.append((len(self._draws.rates), self._noted))
            return super().pieces(count)

    Secret.generator, PoissonSampling.draw = noted_generator, noted_draw  # type: ignore[method-assign,assignment]
    vars(private_training)["NoiseSource"] = NotedSource
    try:
        yield recorded
    finally:
        vars(private_training)["NoiseSource"] = NoiseSource
        Secret.generator, PoissonSampling.draw = generator, draw  # type: ignore[method-assign]
