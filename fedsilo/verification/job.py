"""What the first line of a chain says: the job, its plan, and whose keys count."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pydantic import ValidationError

from fedsilo.api.digest import canonical_digest
from fedsilo.api.job import FederatedJobSpec
from fedsilo.api.messages import first_fault
from fedsilo.api.patterns import QUALIFIED_NAME
from fedsilo.engine.provenance import JobLine
from fedsilo.errors import FedsiloError, ManifestInvalid, MethodError, Problem, ProvenanceInvalid
from fedsilo.methods import registry
from fedsilo.methods.interface import Exchange
from fedsilo.methods.method import Method
from fedsilo.transforms.plan import JobPlan
from fedsilo.verification.place import Place
from fedsilo.wire import VerifyKey, sharing

JOB = "job"
"""Name under which the job's own key is pinned; a silo's has a slash."""


@dataclass(frozen=True)
class VerifiedJob:
    """The job of a chain.

    :param spec_digest: SHA-256 of its frozen specification, in hexadecimal.
    :param silos: silo -> its key, in the job's order.
    :param pinned: names whose keys were given from outside.
    """

    name: str
    uid: str
    spec_digest: str
    spec: FederatedJobSpec
    method: Method
    exchanges: Sequence[Exchange]
    key: VerifyKey
    silos: Mapping[str, VerifyKey]
    pinned: frozenset[str]

    def keys(self) -> dict[str, VerifyKey]:
        """All keys by name, the job's first."""
        return {JOB: self.key, **self.silos}


def verified_job(place: Place, line: JobLine, pins: Mapping[str, VerifyKey]) -> VerifiedJob:
    """Check the first line of a chain against the keys that were pinned, and its directory.

    :param pins: name, `job` or a silo's `namespace/name` -> its key.
    :raises ProvenanceInvalid: when it contradicts itself or one of these.
    :raises ManifestInvalid: when a pinned name is none of the job's, or the job's method is not installed.
    :raises MethodError: when a third party's method does not load, or its declaration fails.
    """
    where = f"{place.provenance}: job"
    try:
        spec_digest = canonical_digest(line.spec)
    except ValueError:  # half of a character, or a number that is none
        raise ProvenanceInvalid(f"{where}: spec holds a text or a number that no specification has") from None
    if place.run is not None and place.run != (line.uid, spec_digest):
        raise ProvenanceInvalid(
            f"{where}: is {line.uid} with specification {spec_digest[:12]}, but run.json says {place.run[0]} with "
            f"{place.run[1][:12]}"
        )
    try:
        spec = FederatedJobSpec.model_validate(line.spec)
    except ValidationError as error:
        raise ProvenanceInvalid(f"{where}: spec.{first_fault(error)}") from None
    names = [silo.name for silo in line.silos]
    if not names:
        raise ProvenanceInvalid(f"{where}: silos: is empty; no model is made from no silos")
    if len(set(names)) != len(names) or (spec.silos.refs and names != list(map(str, spec.silos.refs))):
        raise ProvenanceInvalid(f"{where}: its silos are {', '.join(names)}, not those of its specification")
    key = _key(f"{where}: taskKey", line.task_key)
    silos = {silo.name: _key(f"{where}: silo {silo.name}", silo.key) for silo in line.silos}
    _check_owners(where, {JOB: key, **silos})
    method = registry.bind(spec)
    job = VerifiedJob(
        name=line.name,
        uid=line.uid,
        spec_digest=spec_digest,
        spec=spec,
        method=method,
        exchanges=_exchanges(where, method),
        key=key,
        silos=silos,
        pinned=frozenset(pins),
    )
    _check_pins(where, job.keys(), pins)
    return job


def _exchanges(where: str, method: Method) -> Sequence[Exchange]:
    """The exchanges of the job, at least one: a job without any is refused before it runs, and leaves no chain."""
    try:
        exchanges = JobPlan(method).exchanges
    except FedsiloError:
        raise
    except Exception as error:  # a third party's declaration
        text = f"{where}: the declaration of method {method.name} failed: {type(error).__name__}: {error}"
        raise MethodError(text) from error
    if not exchanges:
        raise ProvenanceInvalid(
            f"{where}: spec.training.rounds: {method.spec.training.rounds}: is too small: method {method.name} has no "
            "exchange in such a job, and no model comes of it"
        )
    return exchanges


def _check_owners(where: str, keys: Mapping[str, VerifyKey]) -> None:
    """Each silo has a name that a Silo can have, and a key of its own: two silos under one key are no two silos."""
    if odd := next((name for name in keys if name != JOB and not re.fullmatch(QUALIFIED_NAME, name)), None):
        raise ProvenanceInvalid(f"{where}: silo {odd}: is no namespace/name of a Silo")
    if shared := sharing(keys):
        one, other = (f"silo {name}" if name != JOB else "the job itself" for name in shared)
        raise ProvenanceInvalid(
            f"{where}: {one} and {other} have one key, {keys[shared[0]].to_text()}: they are one"
        )


def _check_pins(where: str, keys: Mapping[str, VerifyKey], pins: Mapping[str, VerifyKey]) -> None:
    for name, pin in pins.items():
        if name not in keys:
            raise ManifestInvalid(f"--key {name}: no such key; the job has {', '.join(keys)}")
        if keys[name] != pin:
            raise ProvenanceInvalid(
                f"{where}: the key of {name} is {keys[name].to_text()}, but --key says {pin.to_text()}"
            )


def _key(where: str, text: str) -> VerifyKey:
    try:
        return VerifyKey.from_text(text)
    except Problem as problem:
        raise ProvenanceInvalid(f"{where}: {problem.detail}") from None
