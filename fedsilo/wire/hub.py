"""What the hub tells a silo: its SiloAgents as JSON, signed as the bytes that they are.

An envelope like that of a task, whose header is a JSON document instead of a map: SiloAgents are JSON, and there may be
more of them than the envelope of a task holds.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from fedsilo.canonical import canonical_json
from fedsilo.errors import Problem
from fedsilo.wire.envelope import SIGNATURE_HEAD, split_envelope
from fedsilo.wire.fields import pack
from fedsilo.wire.keys import SigningKey, VerifyKey

HUB = "fedsilo/hub/v1"

MAX_HUB_BYTES = 64 << 20
"""Largest document that a silo reads."""

MAX_VERSION = 2**63 - 1
"""Largest version of a list: what an API server holds as an integer."""

_FIELDS = {"protocol", "hub", "silo", "version", "revision", "agents"}

_AGENT = {"name": str, "uid": str, "spec": dict}


def seal_agents(document: Mapping[str, Any], key: SigningKey) -> bytes:
    """Encode and sign what a silo is told."""
    header = canonical_json(document)
    return pack(header) + SIGNATURE_HEAD + key.sign(HUB, header)


def open_agents(data: bytes, key: VerifyKey, silo: str) -> dict[str, Any]:
    """Verify and decode what `seal_agents` made.

    :param key: the hub's.
    :param silo: `namespace/name` of the silo that reads it.
    :raises Problem: `too-long`, `malformed`, `truncated`, `signature-invalid`, `unsupported` or `wrong-sender`.
    """
    header, signature = split_envelope(HUB, data, MAX_HUB_BYTES)
    key.verify(HUB, header, signature)
    try:
        document = json.loads(header)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise Problem("malformed", f"{HUB}: not a JSON object; check the version of the hub")
    if document.get("protocol") != 1:
        raise Problem("unsupported", f"{HUB}: protocol is {document.get('protocol')!r}; 1 is understood here")
    if document.keys() != _FIELDS or not _holds_agents(document):
        raise Problem("malformed", f"{HUB}: has not the fields {', '.join(sorted(_FIELDS))}")
    if document["silo"] != silo:
        raise Problem("wrong-sender", f"{HUB}: is for silo {document['silo']!r}; this is {silo}")
    return document


def _holds_agents(document: Mapping[str, Any]) -> bool:
    version, agents = document["version"], document["agents"]
    return (
        type(version) is int
        and 0 <= version <= MAX_VERSION
        and isinstance(document["revision"], str)
        and isinstance(agents, list)
        and all(
            isinstance(agent, dict)
            and agent.keys() == _AGENT.keys()
            and all(isinstance(agent[name], kind) for name, kind in _AGENT.items())
            for agent in agents
        )
    )
