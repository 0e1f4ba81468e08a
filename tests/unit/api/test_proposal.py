"""What a proposal names of the silos whose keys a job trusts."""

from __future__ import annotations

import hashlib
import json

import pytest

from fedsilo.api.agent import Member, Proposal
from fedsilo.api.proposal import members_digest, proposal_digest

KEYS = [f"ed25519:{letter * 43}=" for letter in "ABC"]
MEMBERS = [Member(silo=f"silo-{name}/{name}", public_key=key) for name, key in zip("zma", KEYS, strict=True)]


def test_the_digest_of_the_members_is_that_of_the_json_in_docs_wire() -> None:
    listed = [{"publicKey": member.public_key, "silo": member.silo} for member in MEMBERS]
    text = json.dumps({"members": listed}, sort_keys=True, separators=(",", ":"))
    assert members_digest(MEMBERS) == hashlib.sha256(text.encode()).hexdigest()
    assert members_digest(None) is None


@pytest.mark.parametrize(
    "others",
    [
        MEMBERS[::-1],
        MEMBERS[:2],
        [*MEMBERS, MEMBERS[0]],
        [MEMBERS[0].model_copy(update={"public_key": KEYS[1]}), *MEMBERS[1:]],
        [MEMBERS[0].model_copy(update={"silo": "silo-z/y"}), *MEMBERS[1:]],
        [],
    ],
)
def test_another_silo_key_or_order_has_another_digest(others: list[Member]) -> None:
    assert members_digest(others) != members_digest(MEMBERS)


def test_a_proposal_without_members_has_the_digest_that_it_always_had() -> None:
    proposal = Proposal(
        namespace="federation",
        name="digits",
        uid="1",
        spec_digest="ab" * 32,
        url="https://hub.example",
        task_key=KEYS[0],
        trainer_image="registry.example/trainer:1",
        guard_image="registry.example/guard:1",
    )
    fields = {
        "guardImage": "registry.example/guard:1",
        "name": "digits",
        "namespace": "federation",
        "specDigest": "ab" * 32,
        "taskKey": KEYS[0],
        "trainerImage": "registry.example/trainer:1",
        "uid": "1",
        "url": "https://hub.example",
    }
    text = json.dumps(fields, separators=(",", ":"))
    assert proposal_digest(proposal) == hashlib.sha256(text.encode()).hexdigest()
    asked = proposal.model_copy(update={"members": members_digest(MEMBERS)})
    assert proposal_digest(asked) != proposal_digest(proposal)
