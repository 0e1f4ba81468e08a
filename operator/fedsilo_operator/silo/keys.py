"""A silo's signing key: made where there is none, published, and never replaced.

The Secret belongs to the institution. It is read by name, and no Secret is ever listed.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime

from fedsilo.api.conditions import ConditionType
from fedsilo.api.observed import condition, status_of
from fedsilo.errors import Problem
from fedsilo.wire import SigningKey
from fedsilo_operator.cluster.interface import Event
from fedsilo_operator.conditions import Condition, as_status
from fedsilo_operator.names import SIGNING_KEY
from fedsilo_operator.objects import MANAGED_BY, MANAGER, SECRET, Object, Ref, is_deleted, ref_of, satisfies
from fedsilo_operator.plan import Create, Plan
from fedsilo_operator.reasons import Reason
from fedsilo_operator.rejections import Rejection, diagnosis_of

ENTRY = "key.pem"
"""Entry of the Secret: an Ed25519 key as PKCS #8 PEM."""

AT_ONCE = 0.1
"""Seconds after which a new Secret is read again: another may have been there first."""

REPAIR, CHECK = 30.0, 600.0
"""Seconds between looks at a Secret that is wrong, and at one that is right: Secrets are not watched."""


@dataclass(frozen=True)
class KeyObservation:
    """A Silo and the Secret of its namespace.

    :param secret: None when there is none.
    :param rejections: what the API server would not let this very reconcile do.
    """

    silo: Object
    secret: Object | None
    rejections: tuple[Rejection, ...] = ()


def plan(seen: KeyObservation, now: datetime, new_key: Callable[[], SigningKey]) -> Plan:
    """What to do about a silo's key, and what to say about it."""
    silo = seen.silo
    if is_deleted(silo):
        return Plan()
    published = status_of(silo).get("publicKey")
    if seen.secret is None and published is None and not seen.rejections:
        return Plan((Create(secret(ref_of(silo).namespace, new_key())),), requeue_after=AT_ONCE)
    key, found = _examine(seen, published)
    status = {"publicKey": key, "conditions": as_status([found], silo, now)}
    if key is None:
        del status["publicKey"]
    return Plan(
        events=tuple(_events(silo, found)),
        status=None if satisfies(silo.get("status"), status) else status,
        requeue_after=CHECK if found.status == "True" else REPAIR,
    )


def secret(namespace: str, key: SigningKey) -> Object:
    """The Secret of a new key. All Silos of a namespace share it: they are one institution."""
    return {
        "apiVersion": SECRET.api,
        "kind": SECRET.name,
        "metadata": {"name": SIGNING_KEY, "namespace": namespace, "labels": {MANAGED_BY: MANAGER}},
        "type": "Opaque",
        "data": {ENTRY: base64.b64encode(key.to_pem()).decode()},
    }


def _examine(seen: KeyObservation, published: str | None) -> tuple[str | None, Condition]:
    """The public key that stays or becomes published, and the condition `Ready`."""
    name = Ref(ref_of(seen.silo).namespace, SIGNING_KEY)
    if (hindrance := diagnosis_of(seen.rejections)) is not None:
        return published, Condition.of(ConditionType.READY, "False", hindrance)
    instead = "or delete the Silo and create it again, which ends its part in every job"
    if seen.secret is None:
        text = f"Secret {name} is gone, and {published} is published. Restore it, {instead}."
        return published, Condition(ConditionType.READY, "False", Reason.KEY_MISSING, text)
    try:
        found = _read(seen.secret, name).verify_key.to_text()
    except Problem as problem:
        remedy = f"Restore it, {instead}" if published else "Delete the Secret, and a new key is made"
        text = f"{problem.detail.partition(';')[0]}. {remedy}."
        return published, Condition(ConditionType.READY, "False", Reason.KEY_INVALID, text)
    if published not in (None, found):
        text = f"Secret {name} holds the key of {found}, and {published} is published. Restore the old one, {instead}."
        return published, Condition(ConditionType.READY, "False", Reason.KEY_INVALID, text)
    return found, Condition(ConditionType.READY, "True", Reason.KEY_READY, f"The silo signs with {found}.")


def _read(observed: Object, name: Ref) -> SigningKey:
    text = (observed.get("data") or {}).get(ENTRY)
    if text is None:
        raise Problem("malformed", f"Secret {name} has no entry {ENTRY}")
    try:
        pem = base64.b64decode(text, validate=True)
    except binascii.Error:
        pem = b""
    return SigningKey.from_pem(pem, f"Secret {name}, entry {ENTRY}")


def _events(silo: Object, found: Condition) -> Iterator[Event]:
    before = condition(silo, found.type)
    if before is None or (before["status"], before["reason"]) != (found.status, found.reason):
        yield Event(silo, "Normal" if found.status == "True" else "Warning", str(found.reason), found.message)
