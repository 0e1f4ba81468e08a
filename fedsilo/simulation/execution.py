"""What a simulation computes with, free of torch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Execution:
    """How the silos' work is done.

    :param workers: processes that share it, one silo each at a time; 0: the simulation's own does all of it.
    :param batch: silos that are trained at once, where the method permits it; 0: one at a time. The result then agrees
        up to rounding.
    """

    workers: int = 0
    batch: int = 0


ALONE = Execution()
"""One process, one silo at a time."""
