"""What a job moves per silo, as `fedsilo methods NAME -f FILE` tells it."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fedsilo.api.text import count_text
from fedsilo.cli.columns import columns
from fedsilo.errors import ManifestInvalid
from fedsilo.methods import registry
from fedsilo.methods.method import Method

if TYPE_CHECKING:
    from fedsilo.engine.traffic import TrafficEstimate

_EXPLANATIONS = (
    "  up: tensors of an update, if every class may be disclosed; header and signature come on top",
    "  down: blobs of a task; again: of these, what the silo's task before, in the same phase, did not have",
    "  whole job: for a silo that takes part in every round",
)


def job_traffic(name: str, file: Path) -> str:
    """The bytes of one silo in each phase of a manifest's job, which names this method.

    :raises ManifestInvalid: when the job names another method.
    :raises MethodError: when a method of another package fails as its silo half is tried.
    """
    from fedsilo.engine.traffic import estimate_traffic
    from fedsilo.validation import load_manifest

    federation = load_manifest(file)
    spec = federation.job.spec
    if spec.method.name != name:
        raise ManifestInvalid(
            f"{file}: spec.method.name is {spec.method.name}, not {name}; describe that method"
        )
    method, silos = registry.bind(spec), [str(silo) for silo in federation.silos]
    if registry.package_of(name):
        estimate, notes = _rehearse(method, silos)
    else:
        estimate, notes = estimate_traffic(method, silos), []
    tensors = estimate.signature.tensors
    parameters = sum(math.prod(tensor.shape) for tensor in tensors)
    size = sum(tensor.nbytes for tensor in tensors)
    head = [
        f"in job {federation.job} of {file}, bytes of one silo",
        f"  model: {parameters:,} numbers in {len(tensors)} tensors, {size:,} bytes",
    ]
    return "\n".join([*head, _table(estimate), *_EXPLANATIONS, *notes])


def _table(estimate: TrafficEstimate) -> str:
    """A row for each phase, and one for the whole job."""
    head = ("  phase", "step", "rounds", "up", "down", "down again")
    rows = [
        (
            f"  {one.phase}",
            one.step,
            *(f"{number:,}" for number in (one.rounds, one.up, one.down)),
            f"{one.again:,}" if one.rounds > 1 else "",
        )
        for one in estimate.phases
    ]
    total = ("  whole job", "", "", f"{estimate.up:,}", f"{estimate.down:,}", "")
    return columns([head, *rows, total], right={2, 3, 4, 5})


def _rehearse(method: Method, silos: Sequence[str]) -> tuple[TrafficEstimate, list[str]]:
    """The traffic of a job of somebody else's method, and a line on what running its silo half on the way has shown.

    :raises MethodError: when it fails.
    """
    from fedsilo.engine.traffic import estimate_traffic
    from fedsilo.local.made_up_silo import MadeUpSilo

    with tempfile.TemporaryDirectory() as directory:
        trial = MadeUpSilo(method, silos[0], Path(directory))
        estimate = estimate_traffic(method, silos, trial)
    said = f"  silo half: answered {count_text(trial.answered, 'task')} on made-up examples, keeping its state in files"
    return estimate, [said if trial.unsuited is None else f"{said}; then not tried, since {trial.unsuited}"]
