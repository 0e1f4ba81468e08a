"""Faults of a job: what its method is not made for, and what does not go with one of its transforms."""

from __future__ import annotations

from fedsilo.api.faults import Finding
from fedsilo.errors import ManifestInvalid
from fedsilo.methods.checks import check_public_data, check_task, check_training
from fedsilo.methods.method import Method
from fedsilo.transforms.plan import JobPlan


def check_job(method: Method) -> list[Finding]:
    """Faults of learning task, training, public data, and of everything that a transform does."""
    plan = JobPlan(method)
    found = [*check_task(method), *check_training(method), *check_public_data(method)]
    for transform in plan.transforms:
        found += transform.conflicts(plan.exchanges)
    return found


def require_consistent(plan: JobPlan) -> None:
    """Return if all transforms of a job go with its method and with each other, of which validation tells.

    :raises ManifestInvalid: naming the field of the first that does not.
    """
    for transform in plan.transforms:
        for path, value, problem, remedy in transform.conflicts(plan.exchanges):
            raise ManifestInvalid(f"{path}: {value!r}: {problem}; {remedy}")
