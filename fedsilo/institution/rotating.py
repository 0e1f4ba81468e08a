"""Another signing key is announced under the old one, which stays for the jobs that began with it.

Each step may be repeated after a crash. The announcement is on the disk before the hub hears of it, and the old key is
put aside only once the hub has it.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from fedsilo.files.durable import link, make_own_directory, rename, sync_directory, unlink
from fedsilo.files.json_files import read_with_digest, write_with_digest
from fedsilo.institution.directory import RESTORE, SiloDirectory, SiloIdentity
from fedsilo.silo.rotation import sign_rotation
from fedsilo.wire import SigningKey, VerifyKey


async def rotate_key(directory: SiloDirectory, member: SiloIdentity) -> str:
    """Announce a new key and take it; its fingerprint.

    :raises Problem: when the hub refuses it.
    :raises Unreachable: when it cannot be asked.
    """
    # Imported here: who only looks at the directory needs no HTTP.
    from fedsilo.hub.client import hub_client

    announced = directory.private_directory / "rotation.json"
    key = directory.signing_key()
    found = read_with_digest(announced, RESTORE, {"rotation": dict})
    if found is None or not directory.next_key_file.exists():
        if found is not None:  # the new key is in its place already
            return _record(directory, member, announced)
        found = {"rotation": sign_rotation(member.silo, key, _next_key(directory), datetime.now(UTC))}
        write_with_digest(announced, found)
    async with hub_client(member.hub, member.silo, key) as hub:
        await hub.rotate(found["rotation"])
    retired = directory.retired_key_file(key.verify_key)
    make_own_directory(retired.parent)
    if not retired.exists():
        link(directory.key_file, retired)
        sync_directory(retired.parent)
    rename(directory.next_key_file, directory.key_file)
    sync_directory(directory.private_directory)
    return _record(directory, member, announced)


def _record(directory: SiloDirectory, member: SiloIdentity, announced: Path) -> str:
    """Record that the key in its place is the registered one; its fingerprint."""
    key = directory.signing_key().verify_key
    directory.write_membership(replace(member, public_key=key.to_text()))
    unlink(announced)
    return key.fingerprint


def _next_key(directory: SiloDirectory) -> SigningKey:
    if not directory.next_key_file.exists():
        SigningKey.generate().save(directory.next_key_file)
    return SigningKey.load(directory.next_key_file)


def is_own(directory: SiloDirectory, public_key: str) -> bool:
    """Whether a key that was retired is still on file."""
    return directory.retired_key_file(VerifyKey.from_text(public_key)).exists()
