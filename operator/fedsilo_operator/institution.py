"""What the status of a remote Silo says about the institution's keys, believed only as far as signatures go.

An institution registers its key with an invitation, a person accepts it, and from then on the institution announces
each new key with the one before. The announcements lie in `status.rotations`, where everyone can check them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from fedsilo.api.observed import Object, status_of
from fedsilo.errors import Problem
from fedsilo.silo.leaving import read_leaving
from fedsilo.silo.rotation import keys_since
from fedsilo_operator.objects import ref_of


def remote_of(silo: Object | None) -> Mapping[str, Any] | None:
    """`spec.remote` of a Silo, which only an institution outside of the cluster has."""
    remote: Mapping[str, Any] | None = ((silo or {}).get("spec") or {}).get("remote")
    return remote


def registered_keys(silo: Object) -> tuple[str, ...]:
    """The key that was registered and those that took over since, the present one last; none before an enrolment.

    :raises Problem: as `read_rotation`, when an announcement does not hold.
    """
    status = status_of(silo)
    if status.get("enrolment") is None:
        return ()
    rotations = status.get("rotations") or ()
    key = str(status["enrolment"]["publicKey"])
    return _keys(str(ref_of(silo)), key, json.dumps(rotations, sort_keys=True)) if rotations else (key,)


def left_at(silo: Object) -> str | None:
    """Since when the institution has left, RFC 3339, if it has said so with its present key."""
    statement = status_of(silo).get("leaving")
    if statement is None:
        return None
    try:
        keys = registered_keys(silo)
        return _left(str(ref_of(silo)), keys[-1], json.dumps(statement, sort_keys=True)) if keys else None
    except Problem:
        return None


@lru_cache(maxsize=1024)
def _keys(silo: str, key: str, rotations: str) -> tuple[str, ...]:
    """Verified once: the gateway asks for every request."""
    return keys_since(silo, key, json.loads(rotations))


@lru_cache(maxsize=1024)
def _left(silo: str, key: str, statement: str) -> str:
    return read_leaving(json.loads(statement), silo, key)[1]
