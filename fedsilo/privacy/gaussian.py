"""Epsilon of Gaussian noise on what all records add to, in closed form, and the noise for an epsilon.

Balle & Wang, "Improving the Gaussian Mechanism for Differential Privacy: Analytical Calibration and Optimal
Denoising", ICML 2018, Theorem 8. Where nothing is sampled, several such mechanisms together are again one (Dong, Roth,
Su, "Gaussian Differential Privacy", 2022, Corollary 3.3), so that this is exact, and needs neither SciPy nor
`dp-accounting`.
"""

from __future__ import annotations

import math

MOST_EPSILON = 1e6
"""Larger ones are not told apart: nothing is hidden then."""

_HALVINGS = 200
"""Times that an interval is halved, until its ends are neighbouring numbers."""


def gaussian_epsilon(noise_multiplier: float, times: int, delta: float) -> float:
    """Epsilon at `delta` of so many sums, each with noise of its own.

    :param noise_multiplier: deviation of the noise over the largest norm that one record adds to a sum.
    :returns: `MOST_EPSILON` where it is larger.
    """
    if times == 0:
        return 0.0
    mu = math.sqrt(times) / noise_multiplier
    low, high = 0.0, MOST_EPSILON
    if _delta(mu, low) <= delta:
        return low
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if _delta(mu, middle) > delta:
            low = middle
        else:
            high = middle
    return high


def gaussian_noise_multiplier(epsilon: float, delta: float, times: int) -> float:
    """The least noise multiplier with which so many sums together are of at most this epsilon at `delta`."""
    low, high = 0.0, 1.0
    while _delta(high, epsilon) <= delta:
        high *= 2
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if _delta(middle, epsilon) > delta:
            high = middle
        else:
            low = middle
    return math.sqrt(times) / low


def _delta(mu: float, epsilon: float) -> float:
    """Phi(a) - e^epsilon Phi(b), with a, b = +-mu / 2 - epsilon / mu and mu the norm over the deviation.

    Written as Phi(a) - phi(a) R(-b) with R(x) = (1 - Phi(x)) / phi(x), in which nothing overflows, because
    (b^2 - a^2) / 2 = epsilon.
    """
    if mu == 0.0:
        return 0.0
    a, b = mu / 2 - epsilon / mu, -mu / 2 - epsilon / mu
    density = math.exp(-a * a / 2) / math.sqrt(2 * math.pi)
    below = density * _mills(-a) if a < 0 else 1 - math.erfc(a / math.sqrt(2)) / 2
    return below - density * _mills(-b)


def _mills(x: float) -> float:
    """(1 - Phi(x)) / phi(x) for x >= 0; far out by its continued fraction (Laplace, 1805)."""
    if x < 20:
        return math.sqrt(math.pi / 2) * math.erfc(x / math.sqrt(2)) * math.exp(x * x / 2)
    found = x
    for number in range(20, 0, -1):
        found = x + number / found
    return 1 / found
