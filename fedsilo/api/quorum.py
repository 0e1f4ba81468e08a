"""How many answers a round needs: decided here for aggregator, simulation, operator, `validate` and explanation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fedsilo.api.faults import Finding
from fedsilo.api.text import counted

if TYPE_CHECKING:
    from fedsilo.api.job import FederatedJob


def quorum(min_silos: int | None, asked: int) -> int:
    """Answers that a round needs: `minSilos`, at most as many as are asked; all of them where the job sets none.

    :param min_silos: `spec.participation.minSilos`.
    """
    return asked if min_silos is None else min(min_silos, asked)


def quorum_findings(job: FederatedJob, silos: int) -> Iterator[Finding]:
    """A quorum that so many silos can never reach; no silos at all are another fault."""
    participation = job.spec.participation
    required, sampled = participation.min_silos, participation.sampled(silos)
    if not silos or required is None or required <= sampled:
        return
    source = "spec.silos.refs" if job.spec.silos.refs else "spec.silos.selector"
    problem = f"is more than the {counted(silos, 'silo')} of {source}"
    if required <= silos:
        problem = (
            f"is more than the {sampled} silos drawn per round (fraction {participation.fraction} of {silos})"
        )
    yield "spec.participation.minSilos", required, problem, f"use {sampled} or less"
