from __future__ import annotations

from fedsilo.backoff import Backoff


def test_a_pause_doubles_with_each_failure_up_to_the_longest() -> None:
    backoff = Backoff(0.5, 3.0)
    assert [backoff.pause(failures) for failures in range(5)] == [0.5, 1.0, 2.0, 3.0, 3.0]
    assert backoff.pause(10**6) == 3.0
