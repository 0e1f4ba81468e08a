"""The directory of a silo on a machine without Kubernetes.

silo.yaml                  the institution    datasets and policy
approvals.yaml             its people         decisions about jobs; `fedsilo silo approve` and `refuse` write it
private/key.pem            the signing key, mode 0600; it never leaves this directory
private/retired/           earlier keys, for the jobs that began with them
private/hub.json           which silo this is, with which key, and how its hub is found and recognised
private/proxy              address of the proxy with its login, as serve found it; for guards alone
private/heard.json         how far the hub's word was heard, and what the silo offers, signed
private/left.json          that the silo has left the consortium, signed
agents/<uid>/record.json   one job's part: SiloAgent as the hub said it, the silo's decision and status
agents/<uid>/volume/       what its guard and trainer share, with the audit log; it stays when the job is gone
logs/                      output of guards and trainers
serving.json               what `fedsilo silo status` shows of the process that serves
lock                       held while a command changes the directory or serves it; its process id
"""

from __future__ import annotations

import os
import pwd
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from fedsilo.api.observed import UID
from fedsilo.api.silo_status import HubAddress
from fedsilo.errors import FileDamaged, ManifestInvalid, Problem, WorkdirConflict
from fedsilo.files.durable import make_own_directory, unlink, write_durably
from fedsilo.files.json_files import read_with_digest, write_with_digest
from fedsilo.files.locking import DirectoryLock
from fedsilo.silo.receipts import AGENTS, VOLUME
from fedsilo.silo.volume import Volume
from fedsilo.wire import SigningKey, VerifyKey

LOCK_SECONDS = 1.0
"""Time after which a lock that somebody holds is taken for that of a process that serves."""

RESTORE = "restore the directory from a backup, or join again in an empty one with a new invitation"

_HUB_FIELDS = {"silo": str, "hub": dict, "tokenDigest": str, "publicKey": str}


def user_name(uid: int) -> str:
    """Name of a user, or the number where nobody has it."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


@dataclass(frozen=True)
class SiloIdentity:
    """Which silo a directory is.

    :param silo: `namespace/name`, the same at the hub and in the institution.
    :param hub: how the hub is found and recognised.
    :param token_digest: SHA-256 of the token of the invitation by which it joined.
    :param public_key: that the hub has registered for it.
    """

    silo: str
    hub: HubAddress
    token_digest: str
    public_key: str


@dataclass(frozen=True)
class SiloDirectory:
    """Paths of a silo's directory, and what identifies it."""

    root: Path

    @property
    def silo_file(self) -> Path:
        """Datasets and policy, which only the institution writes."""
        return self.root / "silo.yaml"

    @property
    def approvals(self) -> Path:
        """File of the decisions of people about jobs."""
        return self.root / "approvals.yaml"

    @property
    def private_directory(self) -> Path:
        """What no trainer sees."""
        return self.root / "private"

    @property
    def ledgers(self) -> Path:
        """What was learned of each dataset so far, over all jobs."""
        return self.private_directory / "ledgers"

    @property
    def key_file(self) -> Path:
        """File of the silo's signing key (PEM)."""
        return self.private_directory / "key.pem"

    @property
    def next_key_file(self) -> Path:
        """The key that is about to take over."""
        return self.private_directory / "next-key.pem"

    def retired_key_file(self, key: VerifyKey) -> Path:
        """Where an earlier key stays."""
        return self.private_directory / "retired" / f"{key.key_id}.pem"

    @property
    def leaving_file(self) -> Path:
        """The statement by which the silo has left."""
        return self.private_directory / "left.json"

    @property
    def proxy(self) -> Path:
        """The proxy through which guards get out."""
        return self.private_directory / "proxy"

    @property
    def agents(self) -> Path:
        """One directory for each job's part."""
        return self.root / AGENTS

    @property
    def logs(self) -> Path:
        """Output of guards and trainers."""
        return self.root / "logs"

    @property
    def serving(self) -> Path:
        """What the process that serves says of itself."""
        return self.root / "serving.json"

    @property
    def hub_version_file(self) -> Path:
        """How far the hub's word was heard."""
        return self.private_directory / "heard.json"

    def record(self, uid: str) -> Path:
        """The record of one job's part."""
        return self.agents / uid / "record.json"

    def volume(self, uid: str) -> Volume:
        """What guard and trainer of one job's part share."""
        return Volume(self.agents / uid / VOLUME)

    def prepare(self) -> None:
        """Make what is missing of it; only its owner enters what fedsilo writes.

        :raises FileDamaged: when something else has the name of one of its directories.
        """
        for path in (self.private_directory, self.agents, self.logs):
            make_own_directory(path, "remove it, or name another directory with --dir")
            path.chmod(0o700)

    def require_owner(self) -> None:
        """Return unless root would write what the directory's owner could not read.

        :raises ManifestInvalid: then.
        """
        owner = self.root.stat().st_uid
        if os.geteuid() == 0 != owner:
            name = user_name(owner)
            raise ManifestInvalid(
                f"{self.root}: belongs to user {name}, who could not read what root writes there; run the command as "
                f"that user, for instance with sudo -u {name}"
            )

    @contextmanager
    def hold_directory(self) -> Iterator[None]:
        """Hold the directory against every other process that would change it.

        :raises WorkdirConflict: when one does.
        :raises ManifestInvalid: when it cannot be written, or as `require_owner`.
        """
        self.require_owner()
        try:
            lock = DirectoryLock(self.root)
        except OSError as error:
            raise ManifestInvalid(
                f"{self.root}: cannot be written ({error.strerror}); name a directory of your own with --dir"
            ) from error
        with lock:
            # A command that looks whether the silo is served holds the lock for a moment.
            until = time.monotonic() + LOCK_SECONDS
            while not (acquired := lock.acquire()) and time.monotonic() < until:
                time.sleep(LOCK_SECONDS / 10)
            if not acquired:
                raise WorkdirConflict(
                    f"{self.root}: process {lock.holder or 'unknown'} serves this silo already; end that one first, or "
                    "name another directory with --dir"
                )
            lock.write_holder(str(os.getpid()))
            yield

    def uids(self) -> list[str]:
        """Identities of the silo's parts in jobs that there are records of, sorted."""
        if not self.agents.is_dir():
            return []
        return sorted(path.name for path in self.agents.iterdir() if UID.fullmatch(path.name))

    def read_heard(self) -> dict[str, Any]:
        """How far the hub's word was heard, and what the silo offers.

        :raises FileDamaged: when it is missing or not as it was written: the hub could take the silo back then.
        """
        found = read_with_digest(self.hub_version_file, RESTORE, {"version": int})
        if found is None:
            raise FileDamaged(f"{self.hub_version_file}: is missing; {RESTORE}")
        return found

    def membership(self) -> SiloIdentity | None:
        """Which silo this is; None before it has joined.

        :raises FileDamaged: when `hub.json` is not as it was written.
        """
        found = read_with_digest(self.private_directory / "hub.json", RESTORE, _HUB_FIELDS)
        if found is None:
            return None
        try:
            hub = HubAddress.model_validate(found["hub"])
        except ValidationError:
            raise FileDamaged(
                f"{self.private_directory / 'hub.json'}: hub is not as this version knows it; {RESTORE}"
            ) from None
        return SiloIdentity(found["silo"], hub, found["tokenDigest"], found["publicKey"])

    def require_membership(self) -> SiloIdentity:
        """Which silo this is.

        :raises ManifestInvalid: before it has joined, or when it is another user's.
        """
        if self.private_directory.is_dir() and not os.access(self.private_directory, os.R_OK | os.X_OK):
            raise ManifestInvalid(
                f"{self.private_directory}: belongs to user {user_name(self.private_directory.stat().st_uid)}; run the "
                "command as that user"
            )
        found = self.membership()
        if found is None:
            raise ManifestInvalid(
                f"{self.root}: is no directory of a silo that has joined; run fedsilo silo join INVITATION --dir "
                f"{self.root}, or name another directory with --dir"
            )
        return found

    def write_membership(self, membership: SiloIdentity) -> None:
        """Record which silo this is."""
        hub: dict[str, Any] = membership.hub.model_dump(mode="json", by_alias=True, exclude_none=True)
        document = {
            "silo": membership.silo,
            "hub": hub,
            "tokenDigest": membership.token_digest,
            "publicKey": membership.public_key,
        }
        write_with_digest(self.private_directory / "hub.json", document)

    def write_proxy(self, environment: Mapping[str, str]) -> None:
        """Keep what `HTTPS_PROXY` says for the guards that are started from now on."""
        address = environment.get("https_proxy") or environment.get("HTTPS_PROXY") or ""
        before = self.proxy.read_text() if self.proxy.exists() else ""
        if address and address != before:
            write_durably(self.proxy, address.encode())
        elif before and not address:
            unlink(self.proxy)

    def signing_key(self) -> SigningKey:
        """The silo's private signing key, from its file.

        :raises FileDamaged: when it is missing or no key, others than its owner may read it, or it is not the
            registered one.
        """
        if self.key_file.exists() and (mode := self.key_file.stat().st_mode & 0o777) & 0o077:
            raise FileDamaged(
                f"{self.key_file}: others may read it (mode {mode:03o}); run chmod 600 {self.key_file}, and find out "
                "who could have"
            )
        try:
            key = SigningKey.load(self.key_file)
        except Problem:
            raise FileDamaged(
                f"{self.key_file}: holds no unencrypted Ed25519 key in PKCS #8 PEM; {RESTORE}"
            ) from None
        self._require_registered(key.verify_key)
        return key

    def _require_registered(self, key: VerifyKey) -> None:
        """Return if a key is the one that was registered, as far as is known: any 32 bytes are a key.

        :raises FileDamaged: when it is another.
        """
        member = self.membership()
        if member is None or member.public_key == key.to_text():
            return
        registered = VerifyKey.from_text(member.public_key)
        # Of a rotation that was cut off, the new key may be in its place before it is on record.
        if not self.retired_key_file(registered).exists():
            raise FileDamaged(
                f"{self.key_file}: has the fingerprint {key.fingerprint}, and silo {member.silo} has registered the "
                f"key with {registered.fingerprint}; {RESTORE}"
            )
