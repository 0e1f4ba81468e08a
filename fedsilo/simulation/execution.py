"""How a simulation executes the silos' tasks; free of torch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ExecutionPlan:
    """How the silos' tasks are executed.

    :param workers: processes that share them, one silo each at a time; 0: the simulation's own does all of them.
    :param batch: silos that are trained at once, where the method permits it, with results that agree up to rounding;
        0: one at a time.
    """

    workers: int = 0
    batch: int = 0


SEQUENTIAL_PLAN = ExecutionPlan()
"""One process, one silo at a time."""
