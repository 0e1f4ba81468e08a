"""A job, its silos with their keys, and what these say of it."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from fedsilo.api.agent import SiloAgentSpec
from fedsilo.api.observed import Object
from fedsilo.api.proposal import proposal_digest, propose
from fedsilo.api.silo import Silo
from fedsilo.api.timestamps import timestamp
from fedsilo.silo.offer import sign_offer
from fedsilo.wire import DECISION, SigningKey, sign_statement
from fedsilo_operator.names import SIGNING_KEY
from fedsilo_operator.objects import (
    FEDERATED_JOB,
    SILO_KIND,
    Ref,
    ref_of,
)
from fedsilo_operator.settings import Settings

START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
JOB_REF = Ref("federation", "digits")
NORTH, SOUTH, EAST = Ref("silo-north", "north"), Ref("silo-south", "south"), Ref("silo-east", "east")
WEST = Ref("silo-west", "west")
KEYS = {
    ref: SigningKey.from_seed(bytes([number]) * 32)
    for number, ref in enumerate((NORTH, SOUTH, EAST, WEST), 1)
}
SECURE_SECTIONS: dict[str, Any] = {
    "aggregation": {"secure": True},
    "evaluation": {"testDataset": "test"},
    "aggregator": {"datasets": [{"name": "test", "loader": "sklearn:digits"}]},
}
"""Sections of a job with secure aggregation."""
SETTINGS = Settings(
    aggregator_image="registry.example/fedsilo-aggregator:0.1.0",
    guard_image="registry.example/fedsilo-guard:0.1.0",
    trainer_image="registry.example/fedsilo-trainer:0.1.0",
    namespace="fedsilo-system",
    master=b"m" * 32,
    metrics_from={"fedsilo.io/metrics": "true"},
)


def manifest(refs: Sequence[Ref] = (NORTH, SOUTH), **changes: Any) -> Object:
    """A job as a person applies it."""
    spec = {
        "method": {"name": "fedavg"},
        "model": {"name": "mlp"},
        "data": {"dataset": "scans", "classes": 10, "inputShape": [64]},
        "training": {"rounds": 3},
        "silos": {"refs": [{"namespace": ref.namespace, "name": ref.name} for ref in refs]},
    }
    return {
        "apiVersion": FEDERATED_JOB.api,
        "kind": FEDERATED_JOB.name,
        "metadata": {"name": JOB_REF.name, "namespace": JOB_REF.namespace},
        "spec": {name: value for name, value in (spec | changes).items() if value is not None},
    }


def silo(ref: Ref, *, key: bool = True, labels: Mapping[str, str] | None = None) -> Object:
    """A silo that offers the dataset, and has published its key and its offer."""
    scans = {"name": "scans", "loader": "npz", "config": {"path": "scans/train.npz"}}
    content: Object = {
        "apiVersion": SILO_KIND.api,
        "kind": SILO_KIND.name,
        "metadata": {"name": ref.name, "namespace": ref.namespace, "labels": dict(labels or {})},
        "spec": {"datasets": [scans]},
    }
    return content | ({"status": published_offer(content)} if key else {})


def published_offer(content: Object, key_of: Ref | None = None) -> dict[str, Any]:
    """What a silo publishes: its key and its signed offer.

    :param key_of: the silo whose key it is, where that is another's.
    """
    name = ref_of(content).name if key_of is None else key_of.name
    key = KEYS[Ref(f"silo-{name}", name)]
    offer = sign_offer(Silo.model_validate(content), START, key)
    return {"publicKey": key.verify_key.to_text(), "offer": offer}


def public_key(ref: Ref) -> str:
    """The key of a silo, which the test knows beforehand."""
    return KEYS[Ref(f"silo-{ref.name}", ref.name)].verify_key.to_text()


def word(agent: Object, **changes: Any) -> dict[str, Any]:
    """What a silo that admits the job adds to its agent's status: proposal and signed decision.

    :param changes: of what is signed.
    """
    spec = SiloAgentSpec.model_validate(agent["spec"])
    proposal = propose(spec, spec.job.spec.agents.image or SETTINGS.trainer_image, SETTINGS.guard_image)
    fields = {
        "silo": str(spec.silo),
        "proposal": proposal_digest(proposal),
        "decision": "Admitted",
        "objections": [],
        "time": timestamp(START),
    }
    key = KEYS[Ref(f"silo-{spec.silo.name}", spec.silo.name)]
    return {
        "proposal": proposal.model_dump(mode="json", by_alias=True, exclude_none=True),
        "decision": sign_statement(DECISION, fields | changes, key),
    }


def signing_secret(ref: Ref) -> Object:
    """The key of a silo, as the institution has put it there."""
    pem = base64.b64encode(KEYS[ref].to_pem()).decode()
    metadata = {"name": SIGNING_KEY, "namespace": ref.namespace}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": {"key.pem": pem}}
