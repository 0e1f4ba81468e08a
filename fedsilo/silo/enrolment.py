"""What the hub's Silo of an institution outside of its cluster says of that institution's keys.

An institution registers its key with an invitation, a person accepts it, and from then on the institution announces
each new key with the one before. All of that lies in the Silo's status, believed only as far as signatures and digests
go: an enrolment counts if one of its keys was accepted, or while the invitation that it was made with is the present
one. Who was revoked and is invited again so enrols anew.
"""

from __future__ import annotations

import json
from functools import lru_cache

from fedsilo.api.observed import Object, reference, status_of
from fedsilo.errors import Problem
from fedsilo.silo.leaving import read_leaving
from fedsilo.silo.rotation import keys_since


def registered_keys(silo: Object) -> tuple[str, ...]:
    """The key that was registered and those that took over since, the present one last; none where no enrolment counts.

    :raises Problem: as `read_rotation`, when an announcement does not hold.
    """
    status, remote = status_of(silo), silo["spec"].get("remote") or {}
    enrolment = status.get("enrolment")
    if enrolment is None:
        return ()
    rotations, key = status.get("rotations") or (), str(enrolment["publicKey"])
    keys = _keys(reference(silo), key, json.dumps(rotations, sort_keys=True)) if rotations else (key,)
    if remote.get("publicKey") in keys:
        return keys
    invitation = remote.get("invitation") or {}
    return keys if invitation and invitation["tokenDigest"] == enrolment.get("tokenDigest") else ()


def left_at(silo: Object) -> str | None:
    """Since when the institution has left, RFC 3339, if it has said so with its present key."""
    statement = status_of(silo).get("leaving")
    if statement is None:
        return None
    try:
        keys = registered_keys(silo)
        return (
            _leaving_time(reference(silo), keys[-1], json.dumps(statement, sort_keys=True)) if keys else None
        )
    except Problem:
        return None


@lru_cache(maxsize=1024)
def _keys(silo: str, key: str, rotations: str) -> tuple[str, ...]:
    """A silo's key and all that have taken over since, verified once: the gateway asks for every request."""
    return keys_since(silo, key, json.loads(rotations))


@lru_cache(maxsize=1024)
def _leaving_time(silo: str, key: str, statement: str) -> str:
    return read_leaving(json.loads(statement), silo, key)[1]
