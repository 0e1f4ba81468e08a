"""Faults of a job: what its method is not made for, and what does not go with one of its transforms."""

from __future__ import annotations

from fedsilo.api.faults import Fault, Finding
from fedsilo.errors import ManifestInvalid
from fedsilo.methods.checks import check_public_data, check_task, check_training
from fedsilo.methods.method import Method
from fedsilo.transforms.plan import JobPlan
from fedsilo.transforms.update_noise.privacy import UpdatePrivacy


def check_job(method: Method) -> list[Finding]:
    """Faults of learning task, training, public data, and of everything that a transform does."""
    plan = JobPlan(method)
    found = [*check_task(method), *check_training(method), *check_public_data(method)]
    for transform in plan.transforms:
        found += transform.conflicts(plan.exchanges)
    return found


def update_privacy(method: Method) -> UpdatePrivacy | None:
    """What is done to an update of a job with `unit: silo` before it leaves; None of another job.

    :raises ManifestInvalid: when transforms of the job do not go together, or its differential privacy, of whatever
        unit, does not cover all that it has silos send; in the words of validation.
    """
    plan = JobPlan(method)
    for transform in plan.transforms:
        for finding in transform.conflicts(plan.exchanges):
            raise ManifestInvalid(Fault("", "", *finding).line())
    return UpdatePrivacy.of_job(method.spec)
