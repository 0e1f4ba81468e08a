"""What a silo offers, as it signs it for the consortium: a copy of it elsewhere cannot be changed unseen.

Where the data are and how they are read is nobody else's business, and what people decided about other jobs neither. An
offer is signed anew when it would say something else, never because time passes.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import ValidationError

from fedsilo.api.observed import Object
from fedsilo.api.silo import Silo
from fedsilo.api.silo_status import Offer
from fedsilo.api.text import count_text
from fedsilo.api.timestamps import timestamp
from fedsilo.errors import Problem
from fedsilo.wire import OFFER, SigningKey, VerifyKey, sign_statement, verify_statement


def sign_offer(silo: Silo, now: datetime, key: SigningKey) -> Object:
    """The signed offer, as it stands in `Silo.status.offer`."""
    content = _content(silo, key.verify_key.to_text())
    return sign_statement(OFFER, {**content, "time": timestamp(now)}, key)


def offers(offer: object, silo: Silo, public_key: str) -> bool:
    """Whether an offer says what the silo offers now, and its signature holds."""
    try:
        fields = verify_statement(OFFER, offer, VerifyKey.from_text(public_key))
    except Problem:
        return False
    return {name: value for name, value in fields.items() if name != "time"} == _content(silo, public_key)


def read_offer(offer: object, silo: str, public_key: str) -> Offer:
    """The offer of a silo.

    :param silo: `namespace/name`.
    :raises Problem: `malformed`, `too-long` or `signature-invalid`; `wrong-sender` for that of another silo or key;
        `unsupported` where what was signed is none that this version knows.
    """
    verify_statement(OFFER, offer, VerifyKey.from_text(public_key))
    try:
        found = Offer.model_validate(offer)
    except ValidationError as error:
        raise Problem(
            "unsupported", f"{OFFER}: {count_text(error.error_count(), 'field')} not as this version knows it"
        ) from None
    for name, said, wanted in (("silo", found.silo, silo), ("publicKey", found.public_key, public_key)):
        if said != wanted:
            raise Problem("wrong-sender", f"{OFFER}: {name} is {said}; must be {wanted}")
    return found


def _content(silo: Silo, public_key: str) -> dict[str, Any]:
    """What is offered, apart from when and by which key it is signed."""
    spec: dict[str, Any] = silo.spec.model_dump(
        mode="json",
        by_alias=True,
        exclude_none=True,
        include={
            "datasets": {"__all__": {"name", "classes", "input_shape"}},
            "policy": set(type(silo.spec.policy).model_fields) - {"approvals"},
        },
    )
    # A statement has no fractions, which not every reader of JSON writes alike.
    for budget in spec["policy"].get("privacyBudget", ()):
        budget |= {name: str(budget[name]) for name in ("epsilon", "delta")}
    return {"silo": str(silo), "publicKey": public_key, **spec}
