"""What a silo offers: what the consortium has to know, and nothing else of the institution."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from fedsilo.api.silo import Silo
from fedsilo.api.silo_policy import Approval, SiloPolicy
from fedsilo.silo.offer import offers, read_offer, sign_offer
from fedsilo.wire import SigningKey

KEY = SigningKey.generate()
PUBLIC_KEY = KEY.verify_key.to_text()
NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def silo(**policy: Any) -> Silo:
    scans = {
        "name": "scans",
        "loader": "npz",
        "config": {"path": "internal-path.npz"},
        "volume": {"hostPath": "/srv/internal-host-path"},
        "classes": 3,
        "inputShape": [1, 64, 64],
    }
    letters = {"name": "letters", "loader": "sklearn:digits"}
    content: dict[str, Any] = {
        "metadata": {"name": "north", "namespace": "silo-north", "annotations": {"internal": "note"}},
        "spec": {
            "datasets": [scans, letters],
            "policy": policy,
            "agent": {"nodeSelector": {"internal": "node"}},
        },
    }
    return Silo.model_validate(content)


def test_an_offer_names_datasets_policy_and_key() -> None:
    document = sign_offer(silo(maxRounds=30, maxBytesPerRound="1Gi"), NOW, KEY)
    found = read_offer(document, "silo-north/north", PUBLIC_KEY)
    assert [(each.name, each.classes, each.input_shape) for each in found.datasets] == [
        ("scans", 3, (1, 64, 64)),
        ("letters", None, None),
    ]
    assert (found.silo, found.public_key, found.time) == (
        "silo-north/north",
        PUBLIC_KEY,
        "2026-03-01T12:00:00Z",
    )
    assert (found.policy["maxRounds"], found.policy["maxBytesPerRound"]) == (30, "1Gi")


def test_nothing_else_of_the_silo_is_published() -> None:
    decided = {"job": "internal", "specDigest": "ab" * 32, "decision": "Refused", "note": "internal"}
    text = json.dumps(sign_offer(silo(approvals=[decided]), NOW, KEY))
    assert "internal" not in text
    assert "approvals" not in text


def test_every_rule_of_the_policy_is_in_the_offer() -> None:
    """A rule that a later version adds is published without being named anywhere."""
    stated = {
        field.alias
        for name, field in SiloPolicy.model_fields.items()
        if name != "approvals" and field.default is not None
    }
    assert set(sign_offer(silo(), NOW, KEY)["policy"]) == stated


def test_an_offer_is_kept_until_it_would_say_something_else() -> None:
    document = sign_offer(silo(), NOW, KEY)
    approval = Approval(job="uid", spec_digest="ab" * 32, decision="Approved").model_dump(by_alias=True)
    assert offers(document, silo(approvals=[approval]), PUBLIC_KEY)
    assert not offers(document, silo(maxRounds=30), PUBLIC_KEY)
    assert not offers(document | {"time": "2026-03-02T12:00:00Z"}, silo(), PUBLIC_KEY)
    assert not offers(None, silo(), PUBLIC_KEY)


def test_a_budget_is_in_the_offer_without_fractions() -> None:
    budget = [{"dataset": "scans", "epsilon": 4, "delta": 1e-4, "period": "8760h"}]
    document = sign_offer(silo(privacyBudget=budget), NOW, KEY)
    found = read_offer(document, "silo-north/north", PUBLIC_KEY)
    assert found.policy["privacyBudget"] == [
        {"dataset": "scans", "unit": "example", "epsilon": "4.0", "delta": "0.0001", "period": "8760h"}
    ]
    assert offers(json.loads(json.dumps(document)), silo(privacyBudget=budget), PUBLIC_KEY)
    assert not offers(document, silo(privacyBudget=[budget[0] | {"epsilon": 5}]), PUBLIC_KEY)
