"""Epsilon of mechanisms beside closed forms, Opacus, and what must hold of any accounting."""

from __future__ import annotations

import math

import pytest
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent
from dp_accounting.pld import PLDAccountant
from hypothesis import given, settings
from hypothesis import strategies as st
from opacus.accountants import PRVAccountant
from scipy.optimize import brentq
from scipy.stats import norm

from fedsilo.privacy.accounting import (
    LEAST_NOISE_MULTIPLIER,
    MOST_STEPS,
    epsilon_of,
    noise_multiplier_for,
)
from fedsilo.privacy.mechanism import LEAST_NOISE_MULTIPLIER as LEAST_MECHANISM_NOISE
from fedsilo.privacy.mechanism import MOST_NOISE_MULTIPLIER as MOST_MECHANISM_NOISE
from fedsilo.privacy.mechanism import Mechanism

DELTA = 1e-5

SETTINGS = {
    "small silo": [Mechanism(1.1, 0.1, 100)],
    "large silo": [Mechanism(0.8, 0.01, 2000)],
    "much noise": [Mechanism(2.5, 0.05, 500)],
    "two sampling rates": [Mechanism(1.0, 0.02, 300), Mechanism(1.0, 0.05, 100)],
    "three of ten rounds": [Mechanism(1.1, 0.05, 3 * 20)],
}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name == "two sampling rates" else [pytest.mark.thorough])
        for name in SETTINGS
    ],
)
def test_epsilon_is_that_of_another_accountant_to_one_percent(name: str) -> None:
    """Opacus has its own composition of privacy loss, Gopi et al., "Numerical Composition of Differential Privacy"."""
    other = PRVAccountant()
    for mechanism in SETTINGS[name]:
        for _ in range(mechanism.times):
            other.step(noise_multiplier=mechanism.noise_multiplier, sample_rate=mechanism.sampling)
    assert epsilon_of(SETTINGS[name], DELTA) == pytest.approx(
        other.get_epsilon(DELTA, eps_error=0.001), rel=0.01
    )


def gaussian_epsilon(noise: float) -> float:
    """Balle, Wang, "Improving the Gaussian Mechanism for Differential Privacy", 2018, Theorem 8."""

    def excess(epsilon: float) -> float:
        half, shift = 1 / (2 * noise), epsilon * noise
        return float(norm.cdf(half - shift) - math.exp(epsilon + norm.logcdf(-half - shift)) - DELTA)

    return float(brentq(excess, 0, 400 / noise))


@pytest.mark.parametrize("noise", [0.5, 1.0, 3.0, 10.0])
def test_noise_on_all_records_has_the_epsilon_of_the_closed_form(noise: float) -> None:
    """Repeated, it is noise of a smaller multiplier, as sums of normal variables are normal."""
    exact = gaussian_epsilon(noise)
    for found in (epsilon_of([Mechanism(noise)], DELTA), epsilon_of([Mechanism(noise * 3, times=9)], DELTA)):
        assert found == pytest.approx(exact, rel=1e-9)


@given(
    st.lists(
        st.sampled_from([Mechanism(1.0, 0.1, 3), Mechanism(2.0, 1.0), Mechanism(1.5, 0.2, 2)]), max_size=5
    )
)
@settings(max_examples=8, deadline=None)
def test_order_and_grouping_change_nothing_and_more_is_never_less(mechanisms: list[Mechanism]) -> None:
    """The ledger has a line for each departure, whatever they add up to."""
    found = epsilon_of(mechanisms, DELTA)
    assert len(mechanisms) < 2 or found == epsilon_of(reversed(mechanisms), DELTA)
    assert epsilon_of([*mechanisms, Mechanism(1.0, 0.1)], DELTA) >= found


def test_nothing_reveals_nothing() -> None:
    """Before the first departure."""
    assert epsilon_of([], DELTA) == 0.0


@pytest.mark.parametrize(
    "epsilon",
    [pytest.param(0.1, marks=pytest.mark.thorough), 1.0, pytest.param(8.0, marks=pytest.mark.thorough)],
)
def test_the_noise_for_an_epsilon_comes_to_it(epsilon: float) -> None:
    """At most, and not much below."""
    parts = [(0.05, 300), (1.0, 2)]
    noise = noise_multiplier_for(epsilon, DELTA, parts)
    found = epsilon_of([Mechanism(noise, sampling, times) for sampling, times in parts], DELTA)
    assert 0.9999 * epsilon < found <= epsilon


@pytest.mark.parametrize(
    ("epsilon", "parts"),
    [
        pytest.param(0.1, [(0.05, 300)], marks=pytest.mark.thorough),
        pytest.param(1.0, [(0.01, 1000)], marks=pytest.mark.thorough),
        (3.0, [(0.2, 20), (1.0, 1)]),
    ],
)
def test_it_comes_to_a_thousandth_of_what_the_library_finds_on_a_finer_grid(
    epsilon: float, parts: list[tuple[float, int]]
) -> None:
    noise = noise_multiplier_for(epsilon, DELTA, parts)
    accountant = PLDAccountant(value_discretization_interval=5e-5)
    for rate, times in parts:
        accountant.compose(PoissonSampledDpEvent(rate, GaussianDpEvent(noise)), times)
    assert accountant.get_epsilon(DELTA) == pytest.approx(epsilon, rel=1e-3)


def test_an_epsilon_that_hardly_limits_gets_the_least_noise_and_one_out_of_reach_is_refused() -> None:
    """The search for a noise multiplier does not hang at either end."""
    assert noise_multiplier_for(100.0, DELTA, [(0.01, 1)]) == LEAST_NOISE_MULTIPLIER
    with pytest.raises(ValueError, match=r"larger epsilon than 1e-06 at delta"):
        noise_multiplier_for(1e-6, DELTA, [(1.0, 300)])


def test_next_to_no_noise_has_a_figure_soon() -> None:
    """Epsilon of next to no noise is large, and no less than that of a little more noise."""
    assert epsilon_of([Mechanism(0.01, 0.5, 10)], DELTA) > epsilon_of([Mechanism(0.25, 0.5, 10)], DELTA)


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"noiseMultiplier": 0}, "noiseMultiplier 0"),
        ({"noiseMultiplier": float("nan")}, "noiseMultiplier nan"),
        ({"noiseMultiplier": True}, "noiseMultiplier True"),
        ({"sampling": 0.0}, "sampling 0.0"),
        ({"sampling": 1.5}, "sampling 1.5"),
        ({"times": 0}, "times 0"),
        ({"times": 1.0}, "times 1.0"),
        ({"more": 1}, "expected"),
    ],
)
def test_a_mechanism_that_is_none_is_refused(changed: dict[str, object], problem: str) -> None:
    """Mechanisms are read from files that a trainer has written."""
    with pytest.raises(ValueError, match=problem):
        Mechanism.from_dict({**Mechanism(1.0).to_dict(), **changed})


def test_a_mechanism_is_read_back_as_it_was() -> None:
    """Documents hold plain numbers."""
    for mechanism in (Mechanism(1.1, 0.25, 7), Mechanism(2.0)):
        assert Mechanism.from_dict(mechanism.to_dict()) == mechanism


@pytest.mark.parametrize(
    ("epsilon", "sampling", "steps"), [(3.0, 0.5, 10**4), (3.0, 0.1, 10**9), (0.1, 1e-4, 10**7)]
)
def test_noise_for_many_steps_is_found_without_a_wide_distribution(
    monkeypatch: pytest.MonkeyPatch, epsilon: float, sampling: float, steps: int
) -> None:
    """With the least noise that of all these steps would take gigabytes."""
    found: list[float] = []
    spent = PLDAccountant.get_epsilon

    def record_epsilon(accountant: PLDAccountant, delta: float) -> float:
        found.append(spent(accountant, delta))
        return found[-1]

    monkeypatch.setattr(PLDAccountant, "get_epsilon", record_epsilon)
    noise = noise_multiplier_for(epsilon, DELTA, ((sampling, steps),))
    assert epsilon_of([Mechanism(noise, sampling, steps)], DELTA) <= epsilon
    assert epsilon_of([Mechanism(noise * 0.99, sampling, steps)], DELTA) > epsilon
    assert max(found, default=0.0) < 5 * epsilon


@given(
    noise=st.one_of(st.floats(LEAST_MECHANISM_NOISE, MOST_MECHANISM_NOISE), st.sampled_from([1e-6, 1e6])),
    sampling=st.one_of(st.floats(1e-12, 1.0), st.sampled_from([1e-12, 1.0])),
    times=st.one_of(st.integers(1, 10**9), st.sampled_from([1, 10**6 + 1, 10**9])),
)
@settings(max_examples=25, deadline=None)
def test_what_may_be_read_of_a_mechanism_has_an_epsilon(noise: float, sampling: float, times: int) -> None:
    document = {"noiseMultiplier": noise, "sampling": sampling, "times": times}
    mechanism = Mechanism.from_dict(document)
    assert mechanism.to_dict() == document
    if times > MOST_STEPS or noise <= LEAST_NOISE_MULTIPLIER or sampling == 1:
        assert epsilon_of([mechanism], DELTA) >= 0
