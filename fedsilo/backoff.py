"""How long to wait before something that failed is tried again."""

from __future__ import annotations

from dataclasses import dataclass

MOST_DOUBLINGS = 30
"""More would change nothing, and overflow in the end."""


@dataclass(frozen=True)
class Backoff:
    """Pauses that double with each failure in a row.

    :param first: seconds after the first failure.
    :param longest: seconds at which they stay.
    """

    first: float
    longest: float

    def pause(self, failures: int) -> float:
        """Seconds to wait where there were so many failures before this one."""
        return min(self.longest, self.first * 2.0 ** min(failures, MOST_DOUBLINGS))
