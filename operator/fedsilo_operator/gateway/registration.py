"""Which institutions have registered, with which key, and which of them may ask.

An institution registers a key with its invitation, announces each new key with the one before, and may leave. What it
so says of itself is one part of its Silo's status; whether it may ask is decided anew at each request.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from fedsilo.api.observed import Object, status_of
from fedsilo.api.timestamps import parse_timestamp, timestamp
from fedsilo.errors import Problem
from fedsilo.silo.enrolment import left_at, registered_keys
from fedsilo.silo.leaving import read_leaving
from fedsilo.silo.rotation import previous_key, read_rotation
from fedsilo.wire import VerifyKey
from fedsilo_operator.cluster.interface import Cache, Cluster, ClusterError, Conflict, NotFound
from fedsilo_operator.gateway.writing import MANAGER, write_status
from fedsilo_operator.institution import remote_of
from fedsilo_operator.objects import SILO_KIND, Ref, ref_of

log = logging.getLogger("fedsilo.gateway")

TRIES = 3
"""Times that a Silo is read and written again because somebody else changed it meanwhile."""

MAX_ROTATIONS = 64
"""Keys of one enrolment: all their announcements stand in the Silo's status."""


class Registration:
    """What institutions say of themselves, and who may ask.

    :param cache: Silos as the watch has seen them.
    :param hub_id: of this hub, by which a silo says what it leaves.
    """

    def __init__(self, cluster: Cluster, cache: Cache, hub_id: str, now: Callable[[], datetime]) -> None:
        self._cluster = cluster
        self._cache = cache
        self._hub_id = hub_id
        self._now = now

    def registered_key(self, silo: Ref, claimed: str | None = None) -> VerifyKey:
        """The key by which a silo's proof is checked: its present one.

        :param claimed: an earlier key of the silo, where that will do: an announcement may have to be sent again.
        :raises Problem: `unknown-sender`, or `not-accepted` where the announcements of its keys do not hold.
        """
        observed = self._cache.get(SILO_KIND, silo)
        if observed is None or remote_of(observed) is None:
            raise _unknown_silo_problem(silo)
        keys = _keys(observed)
        return VerifyKey.from_text(claimed if claimed in keys else keys[-1])

    def require_accepted(self, silo: Ref) -> None:
        """Return if a silo, whose proof holds, may ask now.

        :raises Problem: `unknown-sender`, `silo-left` or `not-accepted`.
        """
        observed = self._cache.get(SILO_KIND, silo)
        if observed is None or (remote := remote_of(observed)) is None:
            raise _revoked_silo_problem(silo)
        if (problem := access_problem(observed)) is not None:
            raise problem
        key = self.registered_key(silo)
        if remote.get("publicKey") not in _keys(observed):
            raise Problem(
                "not-accepted",
                f"the consortium has not accepted the key with the fingerprint {key.fingerprint} yet; tell its office "
                f"the fingerprint, which runs kubectl fedsilo accept {silo.name} -n {silo.namespace}",
            )

    def require_invitation(self, silo: Ref, token: str) -> str:
        """Digest of the token, if it is that of the silo's invitation as far as is known here.

        :raises Problem: `invitation-invalid`.
        """
        digest = hashlib.sha256(token.encode()).hexdigest()
        self._require_invitation(self._cache.get(SILO_KIND, silo), silo, digest)
        return digest

    async def enrol(self, silo: Ref, token: str, key: VerifyKey, version: str) -> None:
        """Register a silo's key; the same once more is no error.

        :raises Problem: `invitation-invalid`, `invitation-used`, `invitation-expired`, `silo-left` or `unreachable`.
        """
        # A stranger, who has no token, never makes the gateway ask the API server.
        digest = self.require_invitation(silo, token)

        def enrolment_status(observed: Object) -> Mapping[str, Any] | None:
            invitation = self._require_invitation(observed, silo, digest)
            enrolment = status_of(observed).get("enrolment")
            if enrolment is not None and enrolment["tokenDigest"] == digest:
                if enrolment["publicKey"] != key.to_text():
                    raise Problem(
                        "invitation-used",
                        f"the invitation of silo {silo} was used at {enrolment['time']} for the key with the "
                        f"fingerprint {enrolment['fingerprint']}; if you joined on another machine, serve the silo "
                        "there, and if that was not you, tell the consortium's office",
                    )
                if (since := left_at(observed)) is not None:
                    raise _left_silo_problem(silo, since)
                return None
            if self._now() >= parse_timestamp(invitation["expires"]):
                raise Problem(
                    "invitation-expired",
                    f"the invitation of silo {silo} ended at {invitation['expires']}; ask for another",
                )
            return {
                "enrolment": {
                    "publicKey": key.to_text(),
                    "fingerprint": key.fingerprint,
                    "tokenDigest": digest,
                    "time": timestamp(self._now()),
                    "version": version,
                }
            }

        if await self._register(silo, enrolment_status):
            log.info("silo %s has registered the key with the fingerprint %s", silo, key.fingerprint)

    async def rotate(self, silo: Ref, rotation: Mapping[str, Any]) -> None:
        """Take over the announcement of a silo's next key; the same once more is no error.

        :raises Problem: as `read_rotation`; `key-superseded`, `too-long` or `unreachable`.
        """

        def rotation_status(observed: Object) -> Mapping[str, Any] | None:
            status, keys = status_of(observed), _keys(observed)
            rotations = list(status.get("rotations") or ())
            if rotation in rotations:
                return None
            previous = previous_key(rotation)
            if previous in keys[:-1]:
                present = VerifyKey.from_text(keys[-1]).fingerprint
                raise Problem(
                    "key-superseded",
                    f"silo {silo} has announced the key with the fingerprint {present} since; use that one, and if "
                    "it is not yours, tell the consortium's office",
                )
            key = read_rotation(rotation, str(silo), keys[-1])
            if key in keys:
                raise Problem("malformed", f"silo {silo} has had the key {key} before; make a new one")
            if len(rotations) >= MAX_ROTATIONS:
                raise Problem(
                    "too-long",
                    f"silo {silo} has announced {len(rotations)} keys; join with a new invitation to change its key",
                )
            return {"enrolment": status["enrolment"], "rotations": [*rotations, dict(rotation)]}

        if await self._register(silo, rotation_status):
            log.info("silo %s has announced a new key", silo)

    async def leave(self, silo: Ref, statement: Mapping[str, Any]) -> None:
        """Take over that a silo has left; the same once more is no error.

        :raises Problem: as `read_leaving`; `wrong-job` for that of another hub, `unknown-sender` or `unreachable`.
        """

        def leaving_status(observed: Object) -> Mapping[str, Any] | None:
            status, keys = status_of(observed), _keys(observed)
            if (remote_of(observed) or {}).get("revoked"):
                raise _revoked_silo_problem(silo)
            hub, _ = read_leaving(statement, str(silo), keys[-1])
            if hub != self._hub_id:
                raise Problem("wrong-job", f"this is hub {self._hub_id}, and silo {silo} leaves hub {hub}")
            if left_at(observed) is not None:
                return None
            said = {name: status[name] for name in ("enrolment", "rotations") if name in status}
            return {**said, "leaving": dict(statement)}

        if await self._register(silo, leaving_status):
            log.info("silo %s has left", silo)

    async def _register(self, silo: Ref, change: Callable[[Object], Mapping[str, Any] | None]) -> bool:
        """Write what an institution says of itself, which is one part of the status: enrolment, rotations, leaving.

        A new enrolment so removes what belongs to the one before.

        :param change: the Silo as it is now -> that part as it shall be; None where it is so already.
        :returns: whether anything was written.
        :raises Problem: `unreachable`, and what `change` raises.
        """
        for _ in range(TRIES):
            try:
                observed = await self._cluster.get(SILO_KIND, silo)
            except NotFound:
                raise Problem("unknown-sender", f"silo {silo} is not known here any more") from None
            except ClusterError as error:
                raise Problem("unreachable", f"the API server does not answer: {error}") from error
            if (wanted := change(observed)) is None:
                return False
            try:
                await write_status(self._cluster, SILO_KIND, observed, wanted, f"{MANAGER}-enrolment")
            except Conflict:
                continue  # somebody was faster; whether with the same shows now
            except ClusterError as error:
                raise Problem("unreachable", f"Silo {silo} cannot be written now: {error}") from error
            return True
        raise Problem("unreachable", f"Silo {silo} changes all the time; try again")

    def _require_invitation(self, silo: Object | None, ref: Ref, digest: str) -> Mapping[str, Any]:
        remote = remote_of(silo) if silo is not None else None
        invitation: Mapping[str, Any] | None = (remote or {}).get("invitation")
        if remote is None or remote.get("revoked") or invitation is None:
            raise _invitation_problem(ref)
        if not hmac.compare_digest(invitation["tokenDigest"], digest):
            raise _invitation_problem(ref)
        return invitation


def access_problem(silo: Object) -> Problem | None:
    """Why a remote silo may ask nothing any more, if it may not."""
    if (remote_of(silo) or {}).get("revoked"):
        return _revoked_silo_problem(ref_of(silo))
    since = left_at(silo)
    return None if since is None else _left_silo_problem(ref_of(silo), since)


def participation_problem(silo: Object) -> Problem | None:
    """Why a remote silo may take part in no job, not even in one that runs, if it may not.

    One that was revoked and is invited again has no accepted key until a person accepts the next.
    """
    if (problem := access_problem(silo)) is not None:
        return problem
    accepted = (remote_of(silo) or {}).get("publicKey") is not None
    return None if accepted else Problem("not-accepted", f"no key of silo {ref_of(silo)} is accepted")


def _keys(silo: Object) -> tuple[str, ...]:
    """The silo's registered public keys, at least one.

    :raises Problem: `unknown-sender`, or `not-accepted` where the announcements do not hold.
    """
    try:
        keys = registered_keys(silo)
    except Problem as problem:
        raise Problem(
            "not-accepted",
            f"the hub's record of the keys of silo {ref_of(silo)} does not hold ({problem.detail}); ask the "
            "consortium's office for another invitation",
        ) from problem
    if not keys:
        raise _unknown_silo_problem(ref_of(silo))
    return keys


def _unknown_silo_problem(silo: Ref) -> Problem:
    text = f"silo {silo} has not enrolled at this hub with its newest invitation; join it with that"
    return Problem("unknown-sender", text)


def _revoked_silo_problem(silo: Ref) -> Problem:
    return Problem(
        "unknown-sender",
        f"silo {silo} was revoked by the consortium; to take part again, ask its office for an invitation",
    )


def _left_silo_problem(silo: Ref, since: str) -> Problem:
    return Problem(
        "silo-left",
        f"silo {silo} has left the consortium at {since}; to take part again, ask its office for an invitation",
    )


def _invitation_problem(silo: Ref) -> Problem:
    return Problem(
        "invitation-invalid",
        f"no invitation with this token is open for silo {silo}; check that the file is whole and the newest, or ask "
        "the consortium's office for another",
    )
