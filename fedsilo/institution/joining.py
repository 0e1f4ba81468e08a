"""Joining a hub makes the key here, and registers its public half with the invitation's token.

Each step may be repeated after a crash: the key that was made stays, and the hub registers it once more without a word.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fedsilo.api.invitation import SiloInvitation
from fedsilo.errors import ManifestInvalid, Problem, WorkdirConflict
from fedsilo.files.durable import make_directory, unlink
from fedsilo.files.json_files import write_with_digest
from fedsilo.hub.client import hub_client
from fedsilo.hub.https import HttpsClient
from fedsilo.hub.poller import token_digest
from fedsilo.institution.directory import SiloDirectory, SiloIdentity
from fedsilo.institution.silo_file import write_template
from fedsilo.process import version
from fedsilo.wire import SigningKey, VerifyKey


@dataclass(frozen=True)
class JoinResult:
    """What a person has to know after joining.

    :param fingerprint: of the key, for the consortium's office.
    :param new_silo_file: whether `silo.yaml` was written and is to be filled in.
    """

    silo: str
    fingerprint: str
    new_silo_file: bool


async def join(directory: SiloDirectory, invitation: SiloInvitation) -> JoinResult:
    """Register this directory's key, which is made where there is none.

    :raises ManifestInvalid: when the invitation, or a variable of the environment, cannot be used.
    :raises WorkdirConflict: when the directory is another silo's, or is being served.
    :raises Problem: when the hub refuses the invitation.
    :raises Unreachable: when it cannot be asked.
    """
    _require_usable(invitation)
    _make(directory.root)
    with directory.hold_directory():
        _refuse_another(directory, invitation)
        directory.prepare()
        if not directory.key_file.exists():
            SigningKey.generate().save(directory.key_file)
        key = directory.signing_key()
        async with hub_client(invitation.hub, invitation.silo, key) as hub:
            fingerprint = await hub.enrol(invitation.token, version())
        digest = token_digest(invitation.token)
        before = directory.membership()
        if before is None or before.token_digest != digest:
            # With a new invitation what the hub said before counts no more, nor that the silo had left.
            write_with_digest(directory.hub_version_file, {"version": 0})
            unlink(directory.leaving_file, missing_ok=True)
        public_key = key.verify_key.to_text()
        directory.write_membership(SiloIdentity(invitation.silo, invitation.hub, digest, public_key))
        return JoinResult(invitation.silo, fingerprint, write_template(directory, invitation.silo))


def _require_usable(invitation: SiloInvitation) -> None:
    """Return if the hub can be asked and understood: before anything is made, a key least of all."""
    HttpsClient(invitation.hub.url, invitation.hub.ca_certificate)
    try:
        VerifyKey.from_text(invitation.hub.key)
    except Problem as problem:
        raise ManifestInvalid(f"the invitation: hub.key: {problem.detail}; ask for it again") from None


def _make(root: Path) -> None:
    if root.exists() and not root.is_dir():
        raise ManifestInvalid(f"{root}: is not a directory; name another with --dir")
    try:
        make_directory(root)
    except OSError as error:
        raise ManifestInvalid(
            f"{root}: cannot be made ({error.strerror}); name a directory that this user may make with --dir"
        ) from error


def _refuse_another(directory: SiloDirectory, invitation: SiloInvitation) -> None:
    """Refuse a directory that has joined as another silo, or another hub's."""
    member = directory.membership()
    if member is None:
        return
    if (member.silo, member.hub.key) != (invitation.silo, invitation.hub.key):
        raise WorkdirConflict(
            f"{directory.root}: has joined as silo {member.silo} of the hub at {member.hub.url}, and the invitation is "
            f"for {invitation.silo} of the one at {invitation.hub.url}; name another directory with --dir"
        )
