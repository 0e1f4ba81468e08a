"""One key of a silo after the other: which is asked for, which takes over, and which one an agent began with.

The next key is in the Secret before anything is said about it, its announcement in the status before anybody acts on
it. Where a hub has the silo's key, the key before stays the published one until the hub has taken the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from fedsilo.api.annotations import ROTATE_KEY
from fedsilo.api.observed import Object, status_of
from fedsilo.api.timestamps import parse_timestamp
from fedsilo.errors import Problem
from fedsilo.silo.rotation import keys_since, previous_key, read_rotation, sign_rotation
from fedsilo.wire import SigningKey, VerifyKey
from fedsilo_operator.objects import ref_of

MAX_ROTATIONS = 64
"""Announcements that a status keeps, the latest."""

REPLACED_KEY_RETENTION = timedelta(hours=1)
"""Time for which a key stays after it was replaced although no agent needs it: one made shortly before may appear."""


def is_asked(silo: Object, key: SigningKey) -> bool:
    """Whether a person asks for another key than this one."""
    return (silo["metadata"].get("annotations") or {}).get(ROTATE_KEY) == key.verify_key.key_id


def rotations_of(silo: Object) -> tuple[Object, ...]:
    """The announcements in the status."""
    return tuple(status_of(silo).get("rotations") or ())


def replaced_keys(silo: Object) -> set[str]:
    """Keys that the silo has had before the last that it announced."""
    return {key for rotation in rotations_of(silo) if (key := previous_key(rotation)) is not None}


def rotation_announcements(
    silo: Object, previous: SigningKey, key: SigningKey, now: datetime
) -> tuple[Object, ...]:
    """The announcements, the last that of this key: as it stands there, for the hub knows it again; or a new one."""
    name, stated = str(ref_of(silo)), rotations_of(silo)
    if stated and _announces(stated[-1], name, previous, key):
        return stated
    # One that was never taken, for a key that is gone, leads nowhere.
    kept = [item for item in stated if previous_key(item) != previous.verify_key.to_text()]
    rotation = sign_rotation(name, previous, key, now)
    return (*kept, rotation)[-MAX_ROTATIONS:]


def announcement(silo: Object) -> Object | None:
    """The announcement of a key that has yet to take over from the published one."""
    stated = rotations_of(silo)
    waits = stated and previous_key(stated[-1]) == status_of(silo).get("publicKey")
    return stated[-1] if waits else None


def announced_key(rotation: Object) -> str:
    """The key that takes over, as the statement says."""
    return str(rotation["succession"]["publicKey"])


def is_settled(silo: Object, now: datetime) -> bool:
    """Whether the last key took over long enough ago for those before to go."""
    stated = rotations_of(silo)
    return not stated or parse_timestamp(stated[-1]["succession"]["time"]) + REPLACED_KEY_RETENTION <= now


def key_for(agent: Object, silo: Object) -> str | None:
    """The key with which a silo speaks about an agent: it ends with the one that it began with.

    That is the agent's own where the silo has begun or decided with it, and has announced its successors since.
    """
    published: str | None = status_of(silo).get("publicKey")
    begun = str((agent["spec"].get("trust") or {}).get("publicKey"))
    if published in (None, begun) or not _has_begun(agent, begun):
        return published
    try:
        keys = keys_since(str(ref_of(silo)), begun, rotations_of(silo))
    except Problem:
        return published
    return begun if published in keys else published


def with_key_for(agent: Object, silo: Object | None) -> Object | None:
    """The Silo as this agent sees it."""
    if silo is None or (key := key_for(agent, silo)) == status_of(silo).get("publicKey"):
        return silo
    return {**silo, "status": {**status_of(silo), "publicKey": key}}


def _has_begun(agent: Object, key: str) -> bool:
    status = status_of(agent)
    if "configuration" in status:
        return True
    try:
        decided: Any = (status.get("decision") or {}).get("keyId")
        return bool(decided == VerifyKey.from_text(key).key_id)
    except Problem:
        return False


def needed_keys(silos: Sequence[Object], agents: Sequence[Object]) -> frozenset[str]:
    """Public keys of a namespace's Silos, and those with which its agents end."""
    published = {str(status_of(silo).get("publicKey")) for silo in silos}
    begun = {str((agent["spec"].get("trust") or {}).get("publicKey")) for agent in agents}
    return frozenset(published | begun)


def _announces(rotation: Object, silo: str, previous: SigningKey, key: SigningKey) -> bool:
    try:
        return read_rotation(rotation, silo, previous.verify_key.to_text()) == key.verify_key.to_text()
    except Problem:
        return False
