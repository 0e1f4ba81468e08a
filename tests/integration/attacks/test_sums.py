"""What a hostile aggregator tries against the guards of a secure sum shows nothing of a single silo."""

from __future__ import annotations

import pytest

from attacks.sums.attempts import ATTEMPTS, attempt_outcome
from attacks.sums.page import chance
from tests.tiers import mark_thorough

NEAR_DISCLOSURES = (
    "nearly the model again, without one silo",
    "scores of nearly the model again, without one silo",
)
"""What only the default prevents: guards compare digests."""

QUICK_ATTEMPTS = ("another model for one silo",)


@pytest.mark.parametrize("attempt", mark_thorough(ATTEMPTS, QUICK_ATTEMPTS))
async def test_nothing_of_a_silo_is_seen_where_all_silos_are_in_every_sum(attempt: str) -> None:
    found = await attempt_outcome(attempt, 3, None)
    assert found.refusals
    assert (found.correlation < chance(attempt), found.exact) == (True, False)


@pytest.mark.parametrize(
    "attempt", mark_thorough((name for name in ATTEMPTS if name not in NEAR_DISCLOSURES), QUICK_ATTEMPTS)
)
async def test_nor_where_a_job_permits_that_one_is_left_out(attempt: str) -> None:
    found = await attempt_outcome(attempt, 4, 3)
    assert found.refusals
    assert (found.correlation < chance(attempt), found.exact) == (True, False)
