"""Epsilon of mechanisms together, and the noise for an epsilon; the figures are those of `dp-accounting`.

Google's library composes privacy loss distributions (PLD; Koskela et al., 2020; Doroshenko et al., 2022), rounded so
that the epsilon is never less than the true one. With next to no noise, where they would be too wide, it composes Rényi
divergences (RDP; Mironov, 2017), whose epsilon is larger; and with more steps than a distribution is composed of in
seconds. Where nothing is sampled, a closed form is exact (`fedsilo.privacy.gaussian`). So time and memory are bounded,
whatever the mechanisms.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from fedsilo.privacy.gaussian import gaussian_epsilon, gaussian_noise_multiplier
from fedsilo.privacy.mechanism import Mechanism

if TYPE_CHECKING:
    from dp_accounting import DpEvent, PrivacyAccountant

MAX_NOISE_MULTIPLIER = 1e4
"""With more, nothing is learned."""

LARGEST_WIDTH = 1e-3
"""Width of the grid of privacy losses: ten times the library's, at a tenth of its time."""

SMALLEST_WIDTH = 1e-5
"""Smallest width of that grid; on a finer one a distribution fills the memory."""

PART_OF_DEVIATION = 0.05
"""What part of the deviation of a release's privacy loss the interval is: the epsilon is hardly 0.1 % larger then."""

TOLERANCE = 1e-5
"""Part by which the noise for an epsilon may be more than the least."""

LEAST_NOISE_MULTIPLIER = 0.2
"""With no more than this, a single release comes to an epsilon above 30, and its distribution fills the memory."""

MOST_STEPS = 10**6
"""Largest number of steps whose distribution is composed in some seconds; the time grows with it."""

ROOM = 1.1
"""Over the noise that is enough without sampling, for the rounding of distributions."""


def epsilon_of(mechanisms: Iterable[Mechanism], delta: float) -> float:
    """Epsilon at `delta` of all these mechanisms on the same records together, whatever their order; 0 of none."""
    # Equal ones are composed in one step, however many lines of a ledger name them.
    times = Counter[tuple[float, float]]()
    for mechanism in mechanisms:
        times[mechanism.noise_multiplier, mechanism.sampling] += mechanism.times
    if all(sampling == 1 for _, sampling in times):
        # Together they are one, whose epsilon is exact in closed form.
        inverse = sum(number / noise**2 for (noise, _), number in times.items())
        return gaussian_epsilon(inverse**-0.5, 1, delta) if times else 0.0
    accountant = _accountant(times)
    for (noise, sampling), number in sorted(times.items()):
        accountant.compose(_event(Mechanism(noise, sampling)), number)
    return float(accountant.get_epsilon(delta))


def noise_multiplier_for(epsilon: float, delta: float, parts: Sequence[tuple[float, int]]) -> float:
    """The least noise multiplier, `LEAST_NOISE_MULTIPLIER` at least, with which all come to at most this epsilon.

    :param parts: sampling and times of each mechanism, all of which get the same noise multiplier.
    :raises ValueError: when `MAX_NOISE_MULTIPLIER` is not enough.
    """
    from scipy.optimize import brentq

    def excess(noise: float) -> float:
        return epsilon_of([Mechanism(noise, sampling, times) for sampling, times in parts], delta) - epsilon

    if excess(LEAST_NOISE_MULTIPLIER) <= 0:
        return LEAST_NOISE_MULTIPLIER
    # From above, where distributions are narrow: with the least noise that of many steps would fill the memory.
    unsampled = gaussian_noise_multiplier(epsilon, delta, sum(times for _, times in parts))
    enough = min(max(ROOM * unsampled, 2 * LEAST_NOISE_MULTIPLIER), MAX_NOISE_MULTIPLIER)
    if excess(enough) > 0:
        raise ValueError(
            f"a noise multiplier of {enough:g} has a larger epsilon than {epsilon} at delta {delta}"
        )
    while (half := max(enough / 2, LEAST_NOISE_MULTIPLIER)) > LEAST_NOISE_MULTIPLIER and excess(half) <= 0:
        enough = half
    noise = float(brentq(excess, half, enough, rtol=TOLERANCE))
    while excess(noise) > 0:
        noise *= 1 + TOLERANCE
    return noise


def _event(mechanism: Mechanism) -> DpEvent:
    from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent

    gaussian = GaussianDpEvent(mechanism.noise_multiplier)
    return gaussian if mechanism.sampling == 1 else PoissonSampledDpEvent(mechanism.sampling, gaussian)


def _accountant(times: Mapping[tuple[float, float], int]) -> PrivacyAccountant:
    """An empty accountant for these releases; noise and sampling -> how often."""
    if min(noise for noise, _ in times) <= LEAST_NOISE_MULTIPLIER or sum(times.values()) > MOST_STEPS:
        from dp_accounting.rdp import RdpAccountant

        return RdpAccountant()
    from dp_accounting.pld import PLDAccountant

    return PLDAccountant(value_discretization_interval=_interval(times))


def _interval(times: Mapping[tuple[float, float], int]) -> float:
    """Width of a grid on which the releases' losses are more than rounding.

    The loss of one sampled release has about the variance q^2 (e^(1 / sigma^2) - 1), its chi-squared divergence.
    """
    variances = {release: release[1] ** 2 * math.expm1(release[0] ** -2) for release in times}
    mean = sum(number * variances[release] for release, number in times.items()) / sum(times.values())
    return min(max(PART_OF_DEVIATION * math.sqrt(mean), SMALLEST_WIDTH), LARGEST_WIDTH)
