"""Whether the patterns of `spec.model.parameters` fit the job's model, where it can be built without data."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

from fedsilo.api.faults import Fault, ManifestFaults
from fedsilo.api.loading import JobManifest
from fedsilo.api.python_reference import PYTHON
from fedsilo.errors import FedsiloError, ImportNotAllowed


def require_parts_of_the_model(federation: JobManifest) -> None:
    """Return if the patterns fit the model, if there are none, or if this machine cannot build it.

    :param federation: without other faults.
    :raises ImportNotAllowed: when it would import what nobody has allowed.
    :raises ManifestFaults: with every pattern that matches no tensor, and what else is wrong with the division.
    """
    if faults := list(_faults(federation)):
        raise ManifestFaults(faults)


def _faults(federation: JobManifest) -> Iterator[Fault]:
    spec = federation.job.spec
    if spec.model.parameters is None or find_spec("torch") is None:
        return
    from fedsilo.learning.models import blank_model, build_module
    from fedsilo.learning.parameters import parts_findings
    from fedsilo.tasks.registry import bind

    try:
        if spec.model.name.startswith(PYTHON):
            model = build_module(spec.model, spec.data, seed=0, task=spec.task)
        else:
            model = blank_model(spec.model, bind(spec.task, spec.data))
    except ImportNotAllowed:
        raise
    except FedsiloError:  # of a package that is not here, and need not be; the run says so
        return
    for finding in parts_findings(spec.model.parameters, model):
        yield federation.fault(federation.job, *finding)
