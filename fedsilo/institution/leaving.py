"""To leave the consortium, the silo says so with its key, and serves no more until it joins again."""

from __future__ import annotations

from datetime import UTC, datetime

from fedsilo.files.json_files import read_with_digest, write_with_digest
from fedsilo.hub.client import hub_client
from fedsilo.institution.directory import RESTORE, SiloDirectory, SiloIdentity
from fedsilo.silo.leaving import sign_leaving
from fedsilo.wire import VerifyKey


async def leave(directory: SiloDirectory, member: SiloIdentity) -> None:
    """Say it to the hub, once or again; from then on nobody serves this directory.

    :raises Problem: when the hub does not take it.
    :raises Unreachable: when it cannot be told; the silo has not left then.
    """
    key = directory.signing_key()
    found = read_with_digest(directory.leaving_file, RESTORE, {"statement": dict})
    if found is None:
        hub_id = VerifyKey.from_text(member.hub.key).key_id
        found = {"statement": sign_leaving(member.silo, hub_id, datetime.now(UTC), key)}
    async with hub_client(member.hub, member.silo, key) as hub:
        await hub.leave(found["statement"])
    write_with_digest(directory.leaving_file, found)
