"""How many answers a round needs: decided here for aggregator, simulation, operator, `validate` and explanation."""

from __future__ import annotations


def quorum(min_silos: int | None, asked: int) -> int:
    """Answers that a round needs: `minSilos`, at most as many as are asked; all of them where the job sets none.

    :param min_silos: `spec.participation.minSilos`.
    """
    return asked if min_silos is None else min(min_silos, asked)
