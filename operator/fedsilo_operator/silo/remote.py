"""A Silo whose institution is outside of the cluster: nothing is made for it here, its accepted key is published.

What the institution says, it says to the gateway, which writes it into the status. Here stands only what the
consortium's office decided in `spec.remote`.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from fedsilo.api.conditions import ConditionType
from fedsilo.api.diagnosis import Condition, Diagnosis, as_status
from fedsilo.api.observed import Object, condition, holds, status_of
from fedsilo.api.timestamps import parse_timestamp
from fedsilo.errors import Problem
from fedsilo.silo.enrolment import left_at, registered_keys
from fedsilo.wire import VerifyKey
from fedsilo_operator.cluster.interface import Event
from fedsilo_operator.institution import remote_of
from fedsilo_operator.objects import is_deleted, ref_of, satisfies
from fedsilo_operator.plan import Plan
from fedsilo_operator.reasons import Reason
from fedsilo_operator.rejections import Rejection, diagnosis_of

NOT_SEEN = timedelta(minutes=5)
"""Time after which an institution is missed: it asks every minute, and every other time is written down."""


def is_remote(silo: Object | None) -> bool:
    """Whether the institution has guard, trainer and key outside of this cluster."""
    return remote_of(silo) is not None


def reconcile(silo: Object, rejections: tuple[Rejection, ...], now: datetime) -> Plan:
    """The status that a remote Silo should have."""
    if is_deleted(silo):
        return Plan()
    key, diagnosis = assess(silo)
    if (rejected := diagnosis_of(rejections)) is not None:
        key, diagnosis = status_of(silo).get("publicKey"), rejected
    valid = diagnosis.reason == Reason.KEY_READY
    ready = Condition.of(ConditionType.READY, "True" if valid else "False", diagnosis)
    connected = _connected_condition(silo, now)
    found = [ready] if connected is None else [ready, connected]
    status = {
        **({} if key is None else {"publicKey": key}),
        "conditions": as_status(found, silo, now),
    }
    published = status_of(silo).get("publicKey")
    unchanged = satisfies(silo.get("status"), status) and published == key
    return Plan(
        events=(*_events(silo, ready), *_connection_events(silo, connected)),
        status=None if unchanged else status,
        requeue_after=_until_missed(silo, now),
    )


def reconcile_agent(agent: Object, silo: Object, now: datetime) -> Plan:
    """The status of a remote silo's agent: what is known here of the connection; all else the institution says."""
    if is_deleted(agent):
        return Plan()
    connected = None if _is_over(agent) else _connected_condition(silo, now)
    before = condition(agent, ConditionType.CONNECTED)
    if connected is None:
        return Plan() if before is None else Plan(status={"conditions": []})
    status = {"conditions": as_status([connected], agent, now)}
    return Plan(status=None if satisfies(agent.get("status"), status) else status)


def _is_over(agent: Object) -> bool:
    return holds(agent, ConditionType.FINISHED) or holds(agent, ConditionType.FAILED)


def _connected_condition(silo: Object, now: datetime) -> Condition | None:
    """Whether the institution was heard of a short time ago; None before it was heard of at all."""
    seen = status_of(silo).get("lastSeen")
    if seen is None:
        return None
    if now < parse_timestamp(seen) + NOT_SEEN:
        text = "The institution asks the gateway for its part in jobs."
        return Condition(ConditionType.CONNECTED, "True", Reason.SEEN, text)
    text = (
        f"Nothing was heard of the institution since {seen}: it does not run, or does not reach the gateway, or no "
        "gateway runs here. `fedsilo silo status` in the institution says which; what it has is kept, and goes on."
    )
    return Condition(ConditionType.CONNECTED, "False", Reason.NOT_SEEN, text)


def _until_missed(silo: Object, now: datetime) -> float | None:
    """Seconds until the institution is missed, unless it is heard of before."""
    seen = status_of(silo).get("lastSeen")
    left = 0.0 if seen is None else (parse_timestamp(seen) + NOT_SEEN - now).total_seconds()
    return left if left > 0 else None


def _connection_events(silo: Object, connected: Condition | None) -> Iterator[Event]:
    before = condition(silo, ConditionType.CONNECTED)
    if connected is not None and before is not None and before["status"] != connected.status:
        normal = connected.status == "True"
        yield Event(silo, "Normal" if normal else "Warning", str(connected.reason), connected.message)


def assess(silo: Object) -> tuple[str | None, Diagnosis]:
    """The key with which jobs may count, and why there is one or none."""
    remote, enrolment, name = silo["spec"]["remote"], status_of(silo).get("enrolment"), ref_of(silo)
    accepted: str | None = remote.get("publicKey")
    of = f"{name.name} -n {name.namespace}"
    if remote.get("revoked"):
        text = f"The consortium has revoked it; kubectl fedsilo invite {of} invites the institution again."
        return None, Diagnosis(Reason.REVOKED, text)
    if enrolment is None:
        return None, Diagnosis(Reason.INVITED, _invitation_text(remote, of))
    try:
        keys = registered_keys(silo)
    except Problem as problem:
        text = (
            f"status.rotations does not lead from the registered key to another: {problem.detail}. Find out who wrote "
            f"it; kubectl fedsilo invite {of} lets the institution register anew."
        )
        return None, Diagnosis(Reason.TRUST_BROKEN, text)
    if not keys:
        earlier = f"The key with the fingerprint {enrolment['fingerprint']} is of an earlier one, and does not count."
        return None, Diagnosis(Reason.INVITED, f"{_invitation_text(remote, of)} {earlier}")
    if (since := left_at(silo)) is not None:
        text = f"The institution has left at {since}; kubectl fedsilo invite {of} invites it again."
        return None, Diagnosis(Reason.LEFT, text)
    fingerprint = enrolment["fingerprint"] if len(keys) == 1 else VerifyKey.from_text(keys[-1]).fingerprint
    if accepted is None:
        text = (
            f"The institution has registered a key with the fingerprint {fingerprint}. Compare it by "
            f"telephone, then kubectl fedsilo accept {of}."
        )
        return None, Diagnosis(Reason.ENROLMENT_PENDING, text)
    if accepted not in keys:
        text = (
            f"spec.remote.publicKey is {accepted}, and the institution has registered {keys[-1]} with the fingerprint "
            f"{fingerprint}; kubectl fedsilo accept {of}, once you have compared it."
        )
        return None, Diagnosis(Reason.ENROLMENT_PENDING, text)
    changed = (
        "" if accepted == keys[-1] else f" It has announced that key with the one before, since {accepted}."
    )
    return keys[-1], Diagnosis(Reason.KEY_READY, f"The silo signs with {keys[-1]}.{changed}")


def _invitation_text(remote: Object, of: str) -> str:
    invitation = remote.get("invitation")
    if invitation is None:
        return f"Nobody is invited; kubectl fedsilo invite {of}."
    return f"The institution has not used its invitation yet, which ends at {invitation['expires']}."


def _events(silo: Object, ready: Condition) -> Iterator[Event]:
    before = condition(silo, ready.type)
    if before is None or (before["status"], before["reason"]) != (ready.status, ready.reason):
        calm = ready.reason in (Reason.KEY_READY, Reason.INVITED)
        yield Event(silo, "Normal" if calm else "Warning", str(ready.reason), ready.message)
