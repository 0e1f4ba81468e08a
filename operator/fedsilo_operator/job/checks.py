"""What is wrong with a job as it is written, and what only the aggregator's image can decide."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pydantic import ValidationError

from fedsilo.api.contradictions import contradictions
from fedsilo.api.faults import Fault
from fedsilo.api.job import FederatedJob
from fedsilo.api.loading import JobManifest
from fedsilo.api.messages import faults_of
from fedsilo.api.observed import Object
from fedsilo.api.text import comma_separated
from fedsilo.methods import registry
from fedsilo.transforms.third_party import registry as transforms
from fedsilo.validation import registry_faults
from fedsilo_operator.objects import FEDERATED_JOB

METHOD = "spec.method.name"

IMAGE_DEPENDENT_FIELDS = re.compile(r"spec\.method\.name|spec\.transforms\[\d+\]\.name")
"""Fields of which another image may know what this operator does not."""


@dataclass(frozen=True)
class ParsedJob:
    """A parsed job, without the fields that may change while it runs.

    :param job: None when it cannot be understood; `faults` then has the reasons.
    """

    job: FederatedJob | None
    faults: tuple[Fault, ...] = ()


def parse(observed: Object) -> ParsedJob:
    """The job as the agents and the aggregator get it: neither suspended nor with a time to live."""
    metadata = {key: observed["metadata"][key] for key in ("name", "namespace", "uid")}
    spec = {
        key: value
        for key, value in observed["spec"].items()
        if key not in ("suspend", "ttlSecondsAfterFinished")
    }
    content = {
        "apiVersion": FEDERATED_JOB.api,
        "kind": FEDERATED_JOB.name,
        "metadata": metadata,
        "spec": spec,
    }
    try:
        return ParsedJob(FederatedJob.model_validate(content))
    except ValidationError as error:
        document = f"FederatedJob {metadata['name']}"
        return ParsedJob(None, tuple(faults_of(error, FederatedJob, file="", document=document)))


def faults(job: FederatedJob) -> list[Fault]:
    """Faults that only a change of the spec could mend; those of a Silo are for its admission to find."""
    federation = JobManifest("", job, ())
    found = registry_faults(federation) + [federation.fault(job, *finding) for finding in contradictions(job)]
    return [fault for fault in found if not IMAGE_DEPENDENT_FIELDS.fullmatch(fault.path)]


def is_known(job: FederatedJob) -> bool:
    """Whether this operator has the job's method and transforms; another image may have what it lacks."""
    return not any(
        IMAGE_DEPENDENT_FIELDS.fullmatch(fault.path) for fault in registry_faults(JobManifest("", job, ()))
    )


def unverified_message(job: FederatedJob) -> str:
    """What a person should know about a method, or transforms, that the operator does not have."""
    if job.spec.method.name in registry.names() and (others := transforms.missing_transforms(job.spec)):
        return (
            f"Of spec.transforms, {comma_separated(others)} is not installed in this operator. The images of"
            " aggregator, guards and trainers decide whether it can run; if that is not meant, correct spec.transforms"
            " in a new job."
        )
    name = job.spec.method.name
    known = ", ".join(registry.names())
    return (
        f"Method {name} is not installed in this operator, which knows {known}. The aggregator's image decides whether"
        f" it can run; if that is not meant, correct {METHOD} in a new job."
    )
