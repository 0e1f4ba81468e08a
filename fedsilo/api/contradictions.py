"""What a job says in one field and does not keep in another, where each of them is well formed."""

from __future__ import annotations

from collections.abc import Iterator

from fedsilo.api.faults import Finding
from fedsilo.api.job import FederatedJob
from fedsilo.api.messages import closest
from fedsilo.api.text import counted


def contradictions(job: FederatedJob) -> Iterator[Finding]:
    """What one part of the job says that another does not keep, whichever silos there are."""
    spec = job.spec
    held = [dataset.name for dataset in spec.aggregator.datasets]
    if spec.evaluation.test_dataset is not None and spec.evaluation.test_dataset not in held:
        remedy = closest(spec.evaluation.test_dataset, held) if held else "add it there"
        problem = "is not among spec.aggregator.datasets"
        yield "spec.evaluation.testDataset", spec.evaluation.test_dataset, problem, remedy
    if spec.evaluation.test_dataset is None and spec.data.validation_fraction == 0:
        problem = "leaves the silos nothing to evaluate on"
        remedy = "hold a part out, such as 0.1, or name a spec.evaluation.testDataset"
        yield "spec.data.validationFraction", 0, problem, remedy


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
