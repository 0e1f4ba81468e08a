"""Faults of a job: what its method is not made for, and what does not go with one of its transforms."""

from __future__ import annotations

from fedsilo.api.faults import Finding
from fedsilo.errors import ManifestInvalid
from fedsilo.methods.checks import check_public_data, check_task, check_training
from fedsilo.methods.method import Method
from fedsilo.transforms.plan import JobPlan
from fedsilo.transforms.third_party.declaration import ThirdPartyTransforms
from fedsilo.transforms.training_noise.declaration import TrainingNoise
from fedsilo.transforms.update_noise.declaration import GuardNoise
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

    :raises ManifestInvalid: when the job's differential privacy, of whatever unit, does not cover all that it has silos
        send, or it has a transform of another package that is not installed or not made for it, of which validation
        tells.
    """
    for kind in (TrainingNoise, GuardNoise, ThirdPartyTransforms):
        if (transform := kind.of(method)) is not None:
            for path, value, problem, remedy in transform.conflicts(()):
                raise ManifestInvalid(f"{path}: {value!r}: {problem}; {remedy}")
    return UpdatePrivacy.of_job(method.spec)
