"""Whether the patterns of `spec.model.parameters` fit the job's model, where it can be built without data."""

from __future__ import annotations

from collections.abc import Iterator

from fedsilo.api.faults import Fault, ManifestFaults
from fedsilo.api.loading import JobManifest
from fedsilo.local.job_model import model_without_data


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
    model = None if spec.model.parameters is None else model_without_data(spec)
    if model is None or spec.model.parameters is None:
        return
    from fedsilo.learning.parameters import parts_findings

    for finding in parts_findings(spec.model.parameters, model):
        yield federation.fault(federation.job, *finding)
