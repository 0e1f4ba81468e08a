"""Jobs that compete for GPUs all end, or say what they wait for and until when."""

from __future__ import annotations

import pytest

from tests.unit.operator.competition import outcome


@pytest.mark.parametrize("seed", [100, 103, 104])
def test_jobs_that_compete_all_end_or_say_what_they_wait_for(seed: int) -> None:
    found, _, _ = outcome(seed)
    assert not found
