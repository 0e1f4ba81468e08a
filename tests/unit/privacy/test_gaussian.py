"""The closed form of Gaussian noise against `dp-accounting`, and where both leave the range of numbers."""

from __future__ import annotations

import pytest
from dp_accounting import GaussianDpEvent
from dp_accounting.pld import PLDAccountant

from fedsilo.privacy.gaussian import MOST_EPSILON, gaussian_epsilon, gaussian_noise_multiplier

SETTINGS = [
    # noise, times, delta
    pytest.param(1.0, 1, 1e-5, id="one release"),
    pytest.param(5.0, 20, 1e-3, id="twenty rounds"),
    pytest.param(2.0, 50, 0.01, id="large epsilon"),
    pytest.param(30.0, 10, 1e-4, id="small epsilon"),
]


@pytest.mark.parametrize(("noise", "times", "delta"), SETTINGS)
def test_epsilon_agrees_with_loss_distributions(noise: float, times: int, delta: float) -> None:
    accountant = PLDAccountant().compose(GaussianDpEvent(noise), times)
    assert gaussian_epsilon(noise, times, delta) == pytest.approx(accountant.get_epsilon(delta), rel=0.01)


@pytest.mark.parametrize(("epsilon", "delta", "times"), [(0.1, 1e-6, 1), (3, 0.01, 20), (50, 1e-3, 200)])
def test_the_noise_for_an_epsilon_has_that_epsilon(epsilon: float, delta: float, times: int) -> None:
    noise = gaussian_noise_multiplier(epsilon, delta, times)
    assert gaussian_epsilon(noise, times, delta) == pytest.approx(epsilon, rel=1e-9)
    assert gaussian_epsilon(0.999 * noise, times, delta) > epsilon


def test_more_rounds_and_less_noise_reveal_more_up_to_what_is_not_told_apart() -> None:
    found = [gaussian_epsilon(noise, 10, 0.01) for noise in (1e9, 100, 10, 1, 0.1, 0.01, 1e-5)]
    assert found == sorted(found)
    assert (found[0], found[-1]) == (0, MOST_EPSILON)
    assert found[-2] == pytest.approx(0.5 * 10 / 0.01**2, rel=0.02)  # mu^2 / 2, which outgrows the rest
    assert gaussian_epsilon(1.0, 0, 0.01) == 0
