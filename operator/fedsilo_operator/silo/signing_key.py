"""A silo's signing key: made where there is none, published, and never replaced; and the offer that it signs.

The Secret belongs to the institution. It is read by name, and no Secret is ever listed.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pydantic import ValidationError

from fedsilo.api.conditions import ConditionType
from fedsilo.api.observed import Object, condition, status_of
from fedsilo.api.silo import Silo
from fedsilo.errors import Problem
from fedsilo.silo.offer import offers, sign_offer
from fedsilo.wire import SigningKey
from fedsilo_operator.cluster.interface import Event
from fedsilo_operator.conditions import Condition, as_status
from fedsilo_operator.names import SIGNING_KEY
from fedsilo_operator.objects import MANAGED_BY, MANAGER, SECRET, Ref, is_deleted, ref_of, satisfies
from fedsilo_operator.plan import Create, Plan
from fedsilo_operator.reasons import Diagnosis, Reason
from fedsilo_operator.rejections import Rejection, diagnosis_of

ENTRY = "key.pem"
"""Entry of the Secret: an Ed25519 key as PKCS #8 PEM."""

CREATED_POLL_SECONDS, INVALID_POLL_SECONDS, VALID_POLL_SECONDS = 0.1, 30.0, 600.0
"""Time until a Secret is read again that was just made (another may have been first), is invalid, or is as it should
be: Secrets are not watched."""


@dataclass(frozen=True)
class KeyObservation:
    """A Silo and the Secret of its namespace.

    :param secret: None when there is none.
    :param rejections: what the API server rejected in this very reconcile.
    """

    silo: Object
    secret: Object | None
    rejections: tuple[Rejection, ...] = ()


@dataclass(frozen=True)
class KeyState:
    """The state of a silo's key.

    :param silo: the Silo as observed.
    :param public_key: the one that stays or becomes published; None while there is none.
    :param valid: whether the Secret holds the published key.
    :param diagnosis: why, or why not.
    :param offer: the signed offer that stays or becomes published; None while there is none.
    """

    silo: Object
    public_key: str | None
    valid: bool
    diagnosis: Diagnosis
    offer: Object | None = None


def reconcile(seen: KeyObservation, now: datetime, new_key: Callable[[], SigningKey]) -> Plan:
    """What to do about a silo's key, and the status that the Silo should have."""
    # 1. A Silo that is being deleted keeps its Secret, which is the institution's.
    if is_deleted(seen.silo):
        return Plan()

    # 2. Interpret what was observed, once: everything below reads this value only.
    state = assess(seen, now)

    # 3. Make a key where none was ever published, and read it again before anything is reported about it.
    if state is None:
        created = Create(secret(ref_of(seen.silo).namespace, new_key()))
        return Plan((created,), requeue_after=CREATED_POLL_SECONDS)

    # 4. Publish it, or report what is wrong with it; no watch reports when that changes.
    return Plan(
        events=tuple(_events(state)),
        status=_status(state, now),
        requeue_after=VALID_POLL_SECONDS if state.valid else INVALID_POLL_SECONDS,
    )


def assess(seen: KeyObservation, now: datetime) -> KeyState | None:
    """The state of a silo's key; None while there has never been one."""
    published: str | None = status_of(seen.silo).get("publicKey")
    offer: Object | None = status_of(seen.silo).get("offer")
    name = Ref(ref_of(seen.silo).namespace, SIGNING_KEY)

    def invalid(reason: Reason, text: str) -> KeyState:
        return KeyState(seen.silo, published, False, Diagnosis(reason, text), offer)

    if (rejected := diagnosis_of(seen.rejections)) is not None:
        return KeyState(seen.silo, published, False, rejected, offer)
    if seen.secret is None and published is None:
        return None
    instead = "or delete the Silo and create it again, which ends its part in every job"
    if seen.secret is None:
        text = f"Secret {name} is gone, and {published} is published. Restore it, {instead}."
        return invalid(Reason.KEY_MISSING, text)
    try:
        key = read(seen.secret, name)
    except Problem as problem:
        remedy = f"Restore it, {instead}" if published else "Delete the Secret, and a new key is made"
        return invalid(Reason.KEY_INVALID, f"{problem.detail.partition(';')[0]}. {remedy}.")
    stored = key.verify_key.to_text()
    if published not in (None, stored):
        text = f"Secret {name} holds the key of {stored}, and {published} is published. Restore the old one, {instead}."
        return invalid(Reason.KEY_INVALID, text)
    signs = Diagnosis(Reason.KEY_READY, f"The silo signs with {stored}.")
    return KeyState(seen.silo, stored, True, signs, _offer(seen.silo, key, now))


def _offer(observed: Object, key: SigningKey, now: datetime) -> Object | None:
    """The offer as it is published, unless the Silo offers something else now.

    A Silo that this version cannot read keeps its last word.
    """
    stated: Object | None = status_of(observed).get("offer")
    try:
        silo = Silo.model_validate({name: item for name, item in observed.items() if name != "status"})
    except ValidationError:
        return stated
    if offers(stated, silo, key.verify_key.to_text()):
        return stated
    return sign_offer(silo, now, key)


def secret(namespace: str, key: SigningKey) -> Object:
    """The Secret of a new key. All Silos of a namespace share it: they are one institution."""
    return {
        "apiVersion": SECRET.api,
        "kind": SECRET.name,
        "metadata": {"name": SIGNING_KEY, "namespace": namespace, "labels": {MANAGED_BY: MANAGER}},
        "type": "Opaque",
        "data": {ENTRY: base64.b64encode(key.to_pem()).decode()},
    }


def read(observed: Object, name: Ref) -> SigningKey:
    """The key in a Secret.

    :raises Problem: `malformed` when there is none.
    """
    text = (observed.get("data") or {}).get(ENTRY)
    if text is None:
        raise Problem("malformed", f"Secret {name} has no entry {ENTRY}")
    try:
        pem = base64.b64decode(text, validate=True)
    except binascii.Error:
        pem = b""
    return SigningKey.from_pem(pem, f"Secret {name}, entry {ENTRY}")


def _ready(state: KeyState) -> Condition:
    return Condition.of(ConditionType.READY, "True" if state.valid else "False", state.diagnosis)


def _status(state: KeyState, now: datetime) -> dict[str, Any] | None:
    """The operator's part of the status; None where it is there already."""
    status = {
        **({} if state.public_key is None else {"publicKey": state.public_key}),
        **({} if state.offer is None else {"offer": state.offer}),
        "conditions": as_status([_ready(state)], state.silo, now),
    }
    return None if satisfies(state.silo.get("status"), status) else status


def _events(state: KeyState) -> Iterator[Event]:
    ready = _ready(state)
    before = condition(state.silo, ready.type)
    if before is None or (before["status"], before["reason"]) != (ready.status, ready.reason):
        yield Event(state.silo, "Normal" if state.valid else "Warning", str(ready.reason), ready.message)
