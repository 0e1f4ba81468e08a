"""A silo's decision about a proposal as the silo signs it, so that nobody can say it for the silo or change it.

It is made anew only when what it says differs, never because time has passed: the signature that others have seen stays
the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from pydantic import ValidationError

from fedsilo.api.agent import MAX_OBJECTIONS, Decision
from fedsilo.api.observed import Object
from fedsilo.api.proposal import proposal_digest
from fedsilo.api.text import count_text
from fedsilo.api.timestamps import timestamp
from fedsilo.errors import Problem
from fedsilo.silo.admission import Admission
from fedsilo.silo.objections import Objection
from fedsilo.wire import DECISION, SigningKey, VerifyKey, sign_statement, verify_statement

MAX_MESSAGE_CHARACTERS = 1024


def sign_decision(admission: Admission, now: datetime, key: SigningKey) -> Object:
    """Sign a decision and return it as it stands in `SiloAgent.status.decision`."""
    return sign_statement(DECISION, {**_content(admission), "time": timestamp(now)}, key)


def states(decision: object, admission: Admission, public_key: str) -> bool:
    """Whether a decision says what the admission says, and its signature holds."""
    try:
        fields = verify_statement(DECISION, decision, VerifyKey.from_text(public_key))
    except Problem:
        return False
    return {name: value for name, value in fields.items() if name != "time"} == _content(admission)


def read_decision(decision: object, public_key: str) -> Decision:
    """A decision that this key has signed.

    :raises Problem: `malformed`, `too-long` or `signature-invalid`; `unsupported` where what was signed is none that
        this version knows.
    """
    verify_statement(DECISION, decision, VerifyKey.from_text(public_key))
    try:
        return Decision.model_validate(decision)
    except ValidationError as error:
        raise Problem(
            "unsupported",
            f"{DECISION}: {count_text(error.error_count(), 'field')} not as this version knows it",
        ) from None


def _content(admission: Admission) -> dict[str, Any]:
    """What is decided, apart from when and by which key."""
    person = admission.approval
    facts = {
        "silo": admission.silo,
        "proposal": proposal_digest(admission.proposal),
        "decision": "Refused" if admission.objections else "Admitted",
        "objections": _objection_entries(admission.objections),
        "decidedBy": person.by if person else None,
        "decidedAt": person.time if person else None,
    }
    return {name: fact for name, fact in facts.items() if fact is not None}


def _objection_entries(objections: Sequence[Objection]) -> list[dict[str, str]]:
    found = [
        {"reason": str(one.reason), "message": one.message[:MAX_MESSAGE_CHARACTERS]} for one in objections
    ]
    if len(found) > MAX_OBJECTIONS:
        *found, last = found[:MAX_OBJECTIONS]
        more = f"{len(objections) - len(found)} more objections; see the condition Admitted"
        found.append({"reason": last["reason"], "message": more})
    return found
