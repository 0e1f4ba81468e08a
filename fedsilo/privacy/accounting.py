"""Epsilon of mechanisms together, and the noise for an epsilon; the figures are those of `dp-accounting`.

Google's library composes privacy loss distributions (PLD; Koskela et al., 2020; Doroshenko et al., 2022), rounded so
that the epsilon is never less than the true one. With next to no noise, where they would be too wide, it composes Rényi
divergences (RDP; Mironov, 2017), whose epsilon is larger. Where nothing is sampled, a closed form is exact
(`fedsilo.privacy.gaussian`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from fedsilo.privacy.gaussian import gaussian_epsilon
from fedsilo.privacy.mechanism import Mechanism

if TYPE_CHECKING:
    from dp_accounting import DpEvent, PrivacyAccountant

MAX_NOISE_MULTIPLIER = 1e4
"""With more, nothing is learned."""

INTERVAL = 1e-3
"""Of the grid of privacy losses: ten times the library's, at a tenth of its time, and the epsilon is 0.1 % larger."""

LEAST_NOISE_MULTIPLIER = 0.2
"""With no more than this, a single release comes to an epsilon above 30, and its distribution fills the memory."""


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
    accountant = _accountant(min(noise for noise, _ in times))
    for (noise, sampling), number in sorted(times.items()):
        accountant.compose(_event(Mechanism(noise, sampling)), number)
    return float(accountant.get_epsilon(delta))


def noise_multiplier_for(epsilon: float, delta: float, parts: Sequence[tuple[float, int]]) -> float:
    """The least noise multiplier, `LEAST_NOISE_MULTIPLIER` at least, with which all come to at most this epsilon.

    :param parts: sampling and times of each mechanism, all of which get the same noise multiplier.
    :raises ValueError: when `MAX_NOISE_MULTIPLIER` is not enough.
    """
    from dp_accounting import ComposedDpEvent, SelfComposedDpEvent
    from dp_accounting.mechanism_calibration import LowerEndpointAndGuess, calibrate_dp_mechanism

    def event(noise: float) -> DpEvent:
        return ComposedDpEvent(
            [SelfComposedDpEvent(_event(Mechanism(noise, sampling)), times) for sampling, times in parts]
        )

    least = LEAST_NOISE_MULTIPLIER
    if epsilon_of([Mechanism(least, sampling, times) for sampling, times in parts], delta) <= epsilon:
        return least
    most = MAX_NOISE_MULTIPLIER
    if epsilon_of([Mechanism(most, sampling, times) for sampling, times in parts], delta) > epsilon:
        raise ValueError(
            f"a noise multiplier of {most:g} has a larger epsilon than {epsilon} at delta {delta}"
        )
    interval = LowerEndpointAndGuess(least, 1.0)
    return float(calibrate_dp_mechanism(_accountant, event, epsilon, delta, interval, tol=1e-4))


def _event(mechanism: Mechanism) -> DpEvent:
    from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent

    gaussian = GaussianDpEvent(mechanism.noise_multiplier)
    return gaussian if mechanism.sampling == 1 else PoissonSampledDpEvent(mechanism.sampling, gaussian)


def _accountant(least_noise: float = 1.0) -> PrivacyAccountant:
    if least_noise <= LEAST_NOISE_MULTIPLIER:
        from dp_accounting.rdp import RdpAccountant

        return RdpAccountant()
    from dp_accounting.pld import PLDAccountant

    return PLDAccountant(value_discretization_interval=INTERVAL)
