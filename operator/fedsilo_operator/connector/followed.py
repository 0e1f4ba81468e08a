"""How far the institution has followed its hub, in its Silo's status: after a crash nothing older is followed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedsilo.api.observed import Object, status_of


def followed_of(silo: Object | None, hub: str) -> Mapping[str, Any]:
    """What was followed of this hub before; nothing of what another one said counts.

    :param hub: its id.
    """
    followed: Mapping[str, Any] = status_of(silo or {}).get("followed") or {}
    return followed if followed.get("hub") == hub else {}


def followed_status(
    silo: Object, hub: str, version: int | None, taken: str | None, used: str | None
) -> dict[str, Any]:
    """The part of the Silo's status that says how far the hub was followed.

    :param version: of what the hub told last; None while it has told nothing to this process.
    :param taken: the silo's key that the hub has taken by an announcement; None while none was to this process.
    :param used: SHA-256 of the token that was used; None while none was to this process.
    """
    before = followed_of(silo, hub)
    if version is None and taken is None:
        stated = status_of(silo).get("followed")
        return {} if stated is None else {"followed": stated}
    since = {
        "publicKey": taken or before.get("publicKey"),
        "tokenDigest": used or before.get("tokenDigest"),
    }
    return {
        "followed": {
            "hub": hub,
            "version": before.get("version", 0) if version is None else version,
            **{name: value for name, value in since.items() if value is not None},
        }
    }
