"""What a job says in one field and does not keep in another, where each of them is well formed."""

from __future__ import annotations

import json
from collections.abc import Iterator

from fedsilo.api.digest import frozen_spec
from fedsilo.api.faults import ABSENT_VALUE, Finding
from fedsilo.api.job import FederatedJob
from fedsilo.api.messages import closest
from fedsilo.api.text import count_text

TEST_DATASET, PUBLIC_DATASET = "spec.evaluation.testDataset", "spec.aggregation.publicDataset"
TEST_EXAMPLES = "has the examples of spec.evaluation.testDataset, on which nothing may be learned"


MAX_SPEC_BYTES = 512 << 10
"""Bytes of a specification as JSON on lines of its own: a ConfigMap, of at most 1 MiB, has it with silo and keys."""


def contradictions(job: FederatedJob) -> Iterator[Finding]:
    """What one part of the job says that another does not keep, whichever silos there are."""
    spec = job.spec
    size = len(json.dumps(frozen_spec(spec), indent=1))
    if size > MAX_SPEC_BYTES:
        problem = f"has {size} bytes as JSON, and at most {MAX_SPEC_BYTES} reach the job's pods"
        yield "spec", ABSENT_VALUE, problem, "shorten its longest part, or read that from a file of the image"
    test, public = spec.evaluation.test_dataset, spec.aggregation.public_dataset
    held = [dataset.name for dataset in spec.aggregator.datasets]
    for field, name in ((TEST_DATASET, test), (PUBLIC_DATASET, public)):
        if name is not None and name not in held:
            others = [other for other in held if field == TEST_DATASET or other != test]
            remedy = closest(name, others) if others else "add it there"
            yield field, name, "is not among spec.aggregator.datasets", remedy
    if test in held and public == test:
        yield PUBLIC_DATASET, public, TEST_EXAMPLES, "name another dataset of public examples"


def quorum_findings(job: FederatedJob, silos: int) -> Iterator[Finding]:
    """A quorum that so many silos can never reach; no silos at all are another fault."""
    participation = job.spec.participation
    required, sampled = participation.min_silos, participation.sample_size(silos)
    if not silos or required is None or required <= sampled:
        return
    source = "spec.silos.refs" if job.spec.silos.refs else "spec.silos.selector"
    problem = f"is more than the {count_text(silos, 'silo')} of {source}"
    if required <= silos:
        problem = (
            f"is more than the {sampled} silos drawn per round (fraction {participation.fraction} of {silos})"
        )
    yield "spec.participation.minSilos", required, problem, f"use {sampled} or less"
