"""A silo's directory and a part in a job, without any process or hub."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from fedsilo.api.agent import agent_name
from fedsilo.api.digest import spec_digest
from fedsilo.api.observed import Object
from fedsilo.api.silo_status import HubAddress
from fedsilo.files.json_files import write_with_digest
from fedsilo.hub.client import AgentList, HubAgent
from fedsilo.hub.mirror import Mirror
from fedsilo.institution.directory import SiloDirectory, SiloIdentity
from fedsilo.wire import SigningKey, make_authority
from tests.integration.service.site import federation

SILO, UID = "silo-north/north", "0a1b2c3d-0000-4000-8000-000000000009"
KEY, TASK_KEY, HUB_KEY = (SigningKey.from_seed(bytes([seed]) * 32) for seed in (1, 2, 3))
HUB = HubAddress(url="https://hub.example", key=HUB_KEY.verify_key.to_text())
MEMBER = SiloIdentity(SILO, HUB, "0" * 64, KEY.verify_key.to_text())
AUTHORITY = make_authority().cert_pem.decode()


def directory(root: Path, policy: Mapping[str, Any] | None = None) -> SiloDirectory:
    """A silo that has joined and offers one dataset."""
    made = SiloDirectory(root)
    root.mkdir(exist_ok=True)
    made.prepare()
    KEY.save(made.key_file)
    made.write_membership(MEMBER)
    write_with_digest(made.hub_version_file, {"version": 7})
    write_silo(made, policy)
    return made


def write_silo(
    directory: SiloDirectory, policy: Mapping[str, Any] | None = None, name: str = "north"
) -> None:
    silo = {
        "apiVersion": "fedsilo.io/v1alpha1",
        "kind": "Silo",
        "metadata": {"namespace": "silo-north", "name": name},
        "spec": {"datasets": [{"name": "digits", "loader": "sklearn:digits"}], "policy": dict(policy or {})},
    }
    directory.silo_file.write_text(yaml.safe_dump(silo))


def spec(suspend: bool = False, image: str | None = None, **trust: Any) -> Object:
    """What the hub asks of this silo."""
    job = federation(data={"classes": 10, "inputShape": [8, 8]}).job
    if image is not None:
        agents = job.spec.agents.model_copy(update={"image": image})
        job = job.model_copy(update={"spec": job.spec.model_copy(update={"agents": agents})})
    frozen = {
        "namespace": job.metadata.namespace,
        "name": job.metadata.name,
        "uid": "job-uid",
        "specDigest": spec_digest(job),
        "spec": job.spec.model_dump(mode="json", by_alias=True, exclude_none=True),
    }
    bundle = {
        "url": "https://hub.example",
        "caCertificate": AUTHORITY,
        "taskKey": TASK_KEY.verify_key.to_text(),
        "publicKey": KEY.verify_key.to_text(),
    }
    silo = {"namespace": "silo-north", "name": "north"}
    return {"job": frozen, "silo": silo, "trust": bundle | trust, "suspend": suspend}


NAME = agent_name("attacked", "job-uid", "silo-north", "north")


def agent(uid: str = UID, **options: Any) -> HubAgent:
    """A SiloAgent with the specification of `spec`, as the hub's client gives it."""
    return HubAgent(NAME, uid, spec(**options))


def agent_of(job: str, uid: str) -> HubAgent:
    """A SiloAgent for a job with another uid."""
    asked = spec()
    return HubAgent(
        agent_name("attacked", job, "silo-north", "north"), uid, asked | {"job": asked["job"] | {"uid": job}}
    )


def mirror_of(*agents: HubAgent) -> Mirror:
    """What the hub asks for."""
    return Mirror(SILO).hear(AgentList(1, "1", agents))


def record(status: Object | None = None, **options: Any) -> Object:
    """A part's record as the institution keeps it on file."""
    metadata = {
        "name": NAME,
        "namespace": "silo-north",
        "uid": UID,
        "creationTimestamp": "2026-01-02T03:04:05Z",
    }
    return {"metadata": metadata, "spec": spec(**options), "status": status or {}}
