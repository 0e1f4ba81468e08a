"""A decision keeps to the bounds of its schema, whatever a silo has to say."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from fedsilo.api.agent import MAX_OBJECTIONS, Proposal
from fedsilo.api.conditions import ObjectionReason
from fedsilo.errors import Problem
from fedsilo.silo.admission import Admission
from fedsilo.silo.decision import read_decision, sign_decision, states
from fedsilo.silo.objections import Objection
from fedsilo.wire import DECISION, SigningKey, sign_statement

KEY = SigningKey.generate()
PUBLIC_KEY = KEY.verify_key.to_text()
NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
PROPOSAL = Proposal(
    namespace="federation",
    name="digits",
    uid="0b1c2d3e",
    spec_digest="ab" * 32,
    url="https://digits-aggregator.federation.svc:8443",
    authority="cd" * 32,
    task_key=PUBLIC_KEY,
    trainer_image="registry.example/trainer:1",
    guard_image="registry.example/guard:1",
)


def refused_ruling(count: int, length: int) -> Admission:
    found = [Objection(ObjectionReason.DATA_INVALID, f"{number}: " + "ü" * length) for number in range(count)]
    return Admission("silo-north/north", PROPOSAL, tuple(found))


@pytest.mark.parametrize(("count", "last"), [(31, "30: "), (32, "31: "), (33, "2 more"), (400, "369 more")])
def test_many_long_objections_fit(count: int, last: str) -> None:
    ruling = refused_ruling(count, 40_000)
    document = sign_decision(ruling, NOW, KEY)
    found = read_decision(document, PUBLIC_KEY)
    assert len(found.objections) == min(count, MAX_OBJECTIONS)
    assert found.objections[-1].message.startswith(last)
    assert states(document, ruling, PUBLIC_KEY)
    assert not states(document, refused_ruling(count, 39), PUBLIC_KEY)


def test_what_a_later_version_signed_is_named_as_such() -> None:
    later = {
        "silo": "silo-north/north",
        "proposal": "ab" * 32,
        "decision": "Deferred",
        "time": "2026-03-01T12:00:00Z",
    }
    with pytest.raises(Problem, match=r"^unsupported: "):
        read_decision(sign_statement(DECISION, later, KEY), PUBLIC_KEY)
