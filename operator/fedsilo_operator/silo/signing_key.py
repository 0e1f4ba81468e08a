"""A silo's signing key: made where there is none, published, replaced where a person asks; and the offer that it signs.

The Secret belongs to the institution. It is read by name, and no Secret is ever listed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pydantic import ValidationError

from fedsilo.api.conditions import ConditionType
from fedsilo.api.diagnosis import Condition, Diagnosis, as_status
from fedsilo.api.observed import Object, condition, status_of
from fedsilo.api.silo import Silo
from fedsilo.errors import Problem
from fedsilo.silo.offer import offers, sign_offer
from fedsilo.wire import SigningKey
from fedsilo_operator.cluster.interface import Event
from fedsilo_operator.names import SIGNING_KEY
from fedsilo_operator.objects import Ref, is_deleted, ref_of, satisfies
from fedsilo_operator.plan import CreateAction, MergeAction, Plan
from fedsilo_operator.reasons import Reason
from fedsilo_operator.rejections import Rejection, diagnosis_of
from fedsilo_operator.silo import key_secret, succession
from fedsilo_operator.silo.budgets import NO_BUDGETS, BudgetObservation, budgets, has_budgets, separate
from fedsilo_operator.silo.validity import validity, validity_events

WRITTEN_POLL_SECONDS, INVALID_POLL_SECONDS, VALID_POLL_SECONDS = 0.1, 30.0, 600.0
"""Time until a Secret is read again that was just written (another may have been first), is invalid, or is as it should
be: Secrets are not watched."""


@dataclass(frozen=True)
class KeyObservation:
    """A Silo and the Secret of its namespace.

    :param secret: None when there is none.
    :param rejections: what the API server rejected in this very reconcile.
    :param needed: public keys with which a Silo or a SiloAgent of the namespace signs.
    :param budgets: what says what is spent of the Silo's privacy budgets.
    :param follows_hub: whether a hub has the silo's key, which changes only once the hub has taken the next.
    """

    silo: Object
    secret: Object | None
    rejections: tuple[Rejection, ...] = ()
    needed: frozenset[str] = frozenset()
    follows_hub: bool = False
    budgets: BudgetObservation = NO_BUDGETS


@dataclass(frozen=True)
class KeyState:
    """The state of a silo's key.

    :param silo: the Silo as observed.
    :param public_key: the one that stays or becomes published; None while there is none.
    :param valid: whether the Secret holds the published key.
    :param diagnosis: why, or why not.
    :param offer: the signed offer that stays or becomes published; None while there is none.
    :param rotations: the announcements of keys that stay or become published.
    :param change: of the Secret, to be made before anything else.
    """

    silo: Object
    public_key: str | None
    valid: bool
    diagnosis: Diagnosis
    offer: Object | None = None
    rotations: tuple[Object, ...] = ()
    change: Object | None = None


def reconcile(seen: KeyObservation, now: datetime, new_key: Callable[[], SigningKey]) -> Plan:
    """What to do about a silo's key, and the status that the Silo should have."""
    # 1. A Silo that is being deleted keeps its Secret, which is the institution's.
    if is_deleted(seen.silo):
        return Plan()

    # 2. Interpret what was observed, once: everything below reads this value only.
    state = assess(seen, now, new_key)

    # 3. Make a key where none was ever published, and read it again before anything is reported about it.
    if state is None:
        created = CreateAction(key_secret.secret(ref_of(seen.silo).namespace, new_key()), check_owner=False)
        return Plan((created,), requeue_after=WRITTEN_POLL_SECONDS)

    # 4. Change the Secret where a person asks for another key, or nobody needs one any more; and read it again.
    if state.change is not None:
        return Plan((MergeAction(state.change),), requeue_after=WRITTEN_POLL_SECONDS)

    # 5. Publish it, or report what is wrong with it; no watch reports when that changes.
    return Plan(
        events=(*_events(state), *validity_events(seen.silo), *_budget_events(seen)),
        status=_status(state, _budgets(seen, now), separate(seen.silo), now),
        requeue_after=VALID_POLL_SECONDS if state.valid else INVALID_POLL_SECONDS,
    )


def assess(seen: KeyObservation, now: datetime, new_key: Callable[[], SigningKey]) -> KeyState | None:
    """The state of a silo's key; None while there has never been one."""
    published: str | None = status_of(seen.silo).get("publicKey")
    name = Ref(ref_of(seen.silo).namespace, SIGNING_KEY)
    if seen.secret is None:
        if (rejected := diagnosis_of(seen.rejections)) is not None:
            return _invalid_state(seen.silo, rejected)
        if published is None:
            return None
        text = f"Secret {name} is gone, and {published} is published. Restore it, {_OTHER_REMEDY}."
        return _invalid_state(seen.silo, Diagnosis(Reason.KEY_MISSING, text))
    try:
        key = key_secret.newest_key(seen.secret, name)
    except Problem as problem:
        remedy = f"Restore it, {_OTHER_REMEDY}" if published else "Delete the Secret, and a new key is made"
        text = f"{problem.detail.partition(';')[0]}. {remedy}."
        return _invalid_state(seen.silo, Diagnosis(Reason.KEY_INVALID, text))
    if published in (None, key.verify_key.to_text()):
        return _settled_state(seen, seen.secret, key, now, new_key)
    return _succession_state(seen, seen.secret, key, now)


_OTHER_REMEDY = "or delete the Silo and create it again, which ends its part in every job"


def _invalid_state(silo: Object, diagnosis: Diagnosis) -> KeyState:
    """What is published stays."""
    status = status_of(silo)
    published, offer = status.get("publicKey"), status.get("offer")
    return KeyState(silo, published, False, diagnosis, offer, succession.rotations_of(silo))


def _settled_state(
    seen: KeyObservation, secret: Object, key: SigningKey, now: datetime, new_key: Callable[[], SigningKey]
) -> KeyState:
    """The newest key is the published one."""
    stored, name = key.verify_key.to_text(), Ref(ref_of(seen.silo).namespace, SIGNING_KEY)
    signs = Diagnosis(Reason.KEY_READY, f"The silo signs with {stored}.")
    own, asked = key_secret.is_own(secret), succession.is_asked(seen.silo, key)
    change = None
    if (rejected := diagnosis_of(seen.rejections)) is not None:
        signs = Diagnosis(rejected.reason, f"{signs.message} {rejected.message}")
    elif asked and own:
        change = key_secret.renewal_change(secret, new_key())
    elif asked:
        text = (
            f"Another key is asked for, and Secret {name} is the institution's own: put the new key there into "
            f"{key_secret.ENTRY}, and this one into another entry that ends in .pem."
        )
        signs = Diagnosis(Reason.KEY_KEPT, f"{signs.message} {text}")
    elif own and succession.is_settled(seen.silo, now):
        change = key_secret.pruning_change(secret, seen.needed | {stored})
    rotations = succession.rotations_of(seen.silo)
    return KeyState(seen.silo, stored, True, signs, _offer(seen.silo, key, now), rotations, change)


def _succession_state(seen: KeyObservation, secret: Object, key: SigningKey, now: datetime) -> KeyState:
    """The newest key is another than the published one."""
    silo, stored, name = seen.silo, key.verify_key.to_text(), Ref(ref_of(seen.silo).namespace, SIGNING_KEY)
    published = str(status_of(silo)["publicKey"])
    previous = key_secret.key_of(secret, published)
    if previous is None:
        text = f"Secret {name} holds the key of {stored}, and {published} is published."
        text = f"{text} Restore the old one, {_OTHER_REMEDY}."
        return _invalid_state(silo, Diagnosis(Reason.KEY_INVALID, text))
    if stored in succession.replaced_keys(silo):
        text = (
            f"Secret {name} holds in {key_secret.ENTRY} the key of {stored}, which the silo has replaced before. Put "
            f"{published} there again, or a key that was never used."
        )
        return _invalid_state(silo, Diagnosis(Reason.KEY_INVALID, text))
    rotations = succession.rotation_announcements(silo, previous, key, now)
    if seen.follows_hub and (status_of(silo).get("followed") or {}).get("publicKey") != stored:
        text = (
            f"The silo signs with {published}, and has announced {stored}, which takes over once the hub has taken "
            "the announcement."
        )
        waits = Diagnosis(Reason.KEY_ANNOUNCED, text)
        return KeyState(silo, published, True, waits, _offer(silo, previous, now), rotations)
    text = (
        f"The silo signs with {stored}, which it has announced with {published}; jobs that began so end so."
    )
    signs = Diagnosis(Reason.KEY_READY, text)
    return KeyState(silo, stored, True, signs, _offer(silo, key, now), rotations)


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


def _ready_condition(state: KeyState) -> Condition:
    return Condition.of(ConditionType.READY, "True" if state.valid else "False", state.diagnosis)


def _budgets(seen: KeyObservation, now: datetime) -> list[Object] | None:
    """What the status says of privacy budgets; None where it says nothing, and of a Silo that cannot be read."""
    stated: list[Object] | None = status_of(seen.silo).get("privacyBudget")
    if not has_budgets(seen.silo):
        return [] if stated else None
    try:
        found = budgets(Silo.model_validate(seen.silo), seen.budgets, now)
    except ValidationError:
        return stated
    return [one.model_dump(mode="json", by_alias=True, exclude_none=True) for one in found]


def _budget_events(seen: KeyObservation) -> Iterator[Event]:
    """One when two datasets begin to be of the same data."""
    found = separate(seen.silo)
    before = condition(seen.silo, ConditionType.BUDGETS_SEPARATE)
    if found is not None and found.status == "False" and (before is None or before["status"] == "True"):
        yield Event(seen.silo, "Warning", str(found.reason), found.message)


def _status(
    state: KeyState, spent: list[Object] | None, separation: Condition | None, now: datetime
) -> dict[str, Any] | None:
    """The operator's part of the status; None where it is there already."""
    status = {
        **({} if state.public_key is None else {"publicKey": state.public_key}),
        **({} if state.offer is None else {"offer": state.offer}),
        **({"rotations": list(state.rotations)} if state.rotations else {}),
        **({} if spent is None else {"privacyBudget": spent}),
        "conditions": as_status(
            [_ready_condition(state), validity(state.silo), *([separation] if separation else [])],
            state.silo,
            now,
        ),
    }
    return None if satisfies(state.silo.get("status"), status) else status


def _events(state: KeyState) -> Iterator[Event]:
    ready = _ready_condition(state)
    before = condition(state.silo, ready.type)
    published = status_of(state.silo).get("publicKey")
    if (
        before is None
        or (before["status"], before["reason"]) != (ready.status, ready.reason)
        or published not in (None, state.public_key)
    ):
        calm = state.valid and ready.reason in (Reason.KEY_READY, Reason.KEY_ANNOUNCED)
        yield Event(state.silo, "Normal" if calm else "Warning", str(ready.reason), ready.message)
