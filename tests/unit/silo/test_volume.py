"""Waiting on the directory that guard and trainer share."""

from __future__ import annotations

from itertools import accumulate, islice, pairwise

from fedsilo.silo.volume import MAX_PAUSE_SECONDS, pauses


def test_a_quick_answer_is_noticed_at_once_and_a_slow_one_costs_little() -> None:
    """What takes t seconds is noticed after at most 1.5 t, and what takes long within 50 ms."""
    checks = list(accumulate(islice(pauses(), 200)))
    assert checks[0] < 0.005
    for before, after in pairwise(checks):
        assert after - before <= min(0.5 * before + checks[0], MAX_PAUSE_SECONDS) + 1e-9
    assert checks[-1] > 0.8 * 200 * MAX_PAUSE_SECONDS
