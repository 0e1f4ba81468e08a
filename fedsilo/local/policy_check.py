"""What the policies of a manifest's own silos say against its job, before anything runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime

from fedsilo.api.agent import FrozenJob
from fedsilo.api.digest import spec_digest
from fedsilo.api.loading import JobManifest
from fedsilo.api.text import comma_separated
from fedsilo.errors import ManifestInvalid, PolicyRefused
from fedsilo.silo import policy


def refusals(federation: JobManifest, now: datetime) -> Mapping[str, list[str]]:
    """Silo -> what its policy says against the job, as its controller and its guard would; only silos that refuse.

    :param federation: what its job sends is left out where faults of the method hide it.
    :param now: the time, for the policies' dates.
    """
    job, spec = federation.job, federation.job.spec
    frozen = FrozenJob(
        namespace=job.metadata.namespace,
        name=job.metadata.name,
        uid="none",
        spec_digest=spec_digest(spec),
        spec=spec,
    )
    try:
        departure = policy.declared_egress(spec)
    except ManifestInvalid:
        departure = None
    found = {silo.metadata.name: policy.objections(silo, frozen, departure, now) for silo in federation.silos}
    return {name: objections for name, objections in found.items() if objections}


def require_permitted(federation: JobManifest, now: datetime) -> list[str]:
    """Return if enough silos admit the job for a round, with a line for what each of the others says.

    :raises PolicyRefused: with these lines, where too few do.
    """
    refused = refusals(federation, now)
    lines = list(_lines(refused))
    if leaves_no_quorum(federation, refused):
        raise PolicyRefused("\n".join(f"{federation.file}: {line}" for line in lines))
    return lines


def leaves_no_quorum(federation: JobManifest, refused: Mapping[str, list[str]]) -> bool:
    """Whether too few silos are left for a round without those that refuse."""
    spec = federation.job.spec
    participation, silos = spec.participation, len(spec.silos.refs) or len(federation.silos)
    return bool(refused) and silos - len(refused) < participation.quorum(participation.sample_size(silos))


def _lines(refused: Mapping[str, list[str]]) -> Iterator[str]:
    """Silos of one template say the same, once."""
    for text in dict.fromkeys(text for objections in refused.values() for text in objections):
        names = [name for name, objections in refused.items() if text in objections]
        yield f"{'silo' if len(names) == 1 else 'silos'} {comma_separated(names, 20)}: {text}"
