"""When something is killed: moments that a seed draws, by bytes that went between silos and hub."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

KILLS = 3
"""Processes that are killed in one run."""

MOST_DELAY_SECONDS = 0.2
"""Longest time from the moment's byte to the kill: what happens while nothing is sent is interrupted too."""

MOST_DOWN_SECONDS = 0.5
"""Time until a process that was killed is started again."""


@dataclass(frozen=True)
class Kill:
    """A SIGKILL of a process at a moment that a seed draws.

    :param passed: bytes that went between silos and hub before it.
    :param delay: seconds from then on.
    :param down: seconds until the process is started again.
    """

    passed: int
    delay: float
    down: float


def drawn_kills(seed: int, passed: int) -> Sequence[Kill]:
    """The kills of a run.

    :param passed: bytes of the undisturbed run.
    """
    chance = random.Random(seed)
    moments = sorted(chance.randrange(passed) for _ in range(KILLS))
    return [
        Kill(moment, chance.uniform(0, MOST_DELAY_SECONDS), chance.uniform(0, MOST_DOWN_SECONDS))
        for moment in moments
    ]
