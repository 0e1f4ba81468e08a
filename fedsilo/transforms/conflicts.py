"""What goes with what in a job: faults that its method finds, and what does not go with one of its transforms.

Whoever refuses a job asks here, so that validation, operator, guards and simulation refuse the same in the same words.
"""

from __future__ import annotations

from collections.abc import Iterator

from fedsilo.api.faults import Fault, Finding
from fedsilo.errors import ManifestInvalid
from fedsilo.methods.checks import check_checkpoints, check_public_data, check_task, check_training
from fedsilo.methods.method import Method
from fedsilo.transforms.plan import JobPlan


def check_job(method: Method) -> list[Finding]:
    """Faults of learning task, training, public data and checkpoints, and features that do not go together."""
    of_method = (*check_task(method), *check_training(method), *check_public_data(method))
    return [*of_method, *check_checkpoints(method), *conflicts_of(method)]


def conflicts_of(method: Method) -> Iterator[Finding]:
    """Features of a job that do not go together, or not with its method: of one transform after another, in order."""
    plan = JobPlan(method)
    for transform in plan.transforms:
        yield from transform.conflicts(plan.exchanges)


def require_consistent(method: Method) -> None:
    """Return if all transforms of a job go with its method and with each other, of which validation tells.

    :raises ManifestInvalid: naming the field of the first that does not.
    """
    for finding in conflicts_of(method):
        raise ManifestInvalid(Fault("", "", *finding).line())
