"""A silo, a job's agent in it, and a small world in which plans are carried out."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from fedsilo.api.digest import spec_digest
from fedsilo.api.job import FederatedJobSpec
from fedsilo.api.observed import Object, holds, uid_of
from fedsilo.api.timestamps import timestamp
from fedsilo.wire import SigningKey
from fedsilo_operator.cluster.interface import Event
from fedsilo_operator.names import agent_labels, agent_name
from fedsilo_operator.objects import (
    CLAIM,
    CONFIG_MAP,
    JOB,
    MANAGER,
    NETWORK_POLICY,
    POD,
    SILO_AGENT,
    SILO_KIND,
    Kind,
    Ref,
    kind_of,
    labels_of,
    ref_of,
    suspend_managers,
)
from fedsilo_operator.plan import ApplyAction, CreateAction, DeleteAction, MergeAction, Plan
from fedsilo_operator.settings import Settings
from fedsilo_operator.silo.observe import observe
from fedsilo_operator.silo.reconcile import reconcile
from fedsilo_operator.workloads.agent import GUARD, TRAINER
from fedsilo_operator.workloads.suspension import SUSPEND_MANAGER

JOB_REF = Ref("federation", "digits")
SILO_REF = Ref("silo-north", "north")
UID = "0b1c2d3e-0000-4000-8000-000000000001"
SIGNING = SigningKey.from_seed(b"n" * 32)
KEY = SIGNING.verify_key.to_text()
OTHER_KEY = "ed25519:" + "B" * 43 + "="
START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
SETTINGS = Settings(
    aggregator_image="registry.example/fedsilo-aggregator:0.1.0",
    guard_image="registry.example/fedsilo-guard:0.1.0",
    trainer_image="registry.example/fedsilo-trainer:0.1.0",
    namespace="fedsilo-system",
    master=b"m" * 32,
    metrics_from={"fedsilo.io/metrics": "true"},
)
NAME = agent_name(JOB_REF, UID, SILO_REF)
AGENT_REF = Ref(SILO_REF.namespace, NAME)
POLICY_REF = Ref(SILO_REF.namespace, f"{NAME}-policy")
CERTIFICATE = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
CHILDREN = [
    (CLAIM, NAME),
    (CONFIG_MAP, NAME),
    (CONFIG_MAP, f"{NAME}-policy"),
    (NETWORK_POLICY, f"{NAME}-trainer"),
    (NETWORK_POLICY, f"{NAME}-guard"),
    (JOB, f"{NAME}-trainer"),
    (JOB, f"{NAME}-guard"),
]
"""In the order in which they are made."""


def job_spec(**changes: Any) -> dict[str, Any]:
    """The spec of a job with two silos."""
    spec = {
        "method": {"name": "fedavg"},
        "model": {"name": "mlp"},
        "data": {"dataset": "scans", "classes": 10, "inputShape": [1, 8, 8]},
        "training": {"rounds": 20},
        "silos": {
            "refs": [{"namespace": "silo-north", "name": "north"}, {"namespace": "b", "name": "south"}]
        },
        "backoffLimit": 2,
    }
    return {**spec, **changes}


def agent(spec: Mapping[str, Any] | None = None, *, suspend: bool = False, **trust: Any) -> Object:
    """The SiloAgent that the job controller makes."""
    typed = FederatedJobSpec.model_validate(job_spec() if spec is None else spec)
    bundle = {
        "url": "https://digits-aggregator.federation.svc:8443",
        "address": "10.96.1.2",
        "caCertificate": CERTIFICATE,
        "taskKey": OTHER_KEY,
        "publicKey": KEY,
    }
    return {
        "apiVersion": SILO_AGENT.api,
        "kind": SILO_AGENT.name,
        "metadata": {
            "name": NAME,
            "namespace": SILO_REF.namespace,
            "uid": "a0000000-0000-4000-8000-000000000001",
            "generation": 1,
            "labels": agent_labels(JOB_REF, UID, SILO_REF, "silo-agent"),
            "creationTimestamp": timestamp(START),
        },
        "spec": {
            "job": {
                "namespace": JOB_REF.namespace,
                "name": JOB_REF.name,
                "uid": UID,
                "specDigest": spec_digest(typed),
                "spec": typed.model_dump(mode="json", by_alias=True, exclude_none=True),
            },
            "silo": {"namespace": SILO_REF.namespace, "name": SILO_REF.name},
            "trust": bundle | trust,
            "suspend": suspend,
        },
    }


def silo(
    policy: Mapping[str, Any] | None = None, template: Mapping[str, Any] | None = None, **more: Any
) -> Object:
    """A silo with one dataset on a claim."""
    scans = {
        "name": "scans",
        "loader": "npz",
        "config": {"path": "scans/train.npz"},
        "volume": {"persistentVolumeClaim": "scans"},
    }
    content: Object = {
        "apiVersion": SILO_KIND.api,
        "kind": SILO_KIND.name,
        "metadata": {
            "name": SILO_REF.name,
            "namespace": SILO_REF.namespace,
            "uid": "50000000-0000-4000-8000-000000000001",
            "generation": 1,
        },
        "spec": {"datasets": [scans], "policy": dict(policy or {}), "agent": dict(template or {})},
        "status": {"publicKey": KEY},
    }
    content["spec"] |= more
    return content


class World:
    """Objects by kind and name, the plans carried out on them, and a clock that a test moves."""

    def __init__(self, *objects: Object) -> None:
        self.objects: dict[Kind, dict[Ref, Object]] = {}
        self.now = START
        self.made = 0
        self.events: list[Event] = []
        self.kubernetes_events: list[Object] = []
        self.signing_key: SigningKey | None = SIGNING
        """What the Secret of the silo's namespace holds."""
        self.signatures = 0
        """How often the controller had to read it."""
        for obj in objects:
            self.put(obj)

    # The cache that the controller observes.

    def get(self, kind: Kind, ref: Ref) -> Object | None:
        return self.objects.get(kind, {}).get(ref)

    def select(
        self, kind: Kind, *, namespace: str | None = None, labels: Mapping[str, str] | None = None
    ) -> Iterable[Object]:
        return [
            obj
            for ref, obj in sorted(self.objects.get(kind, {}).items())
            if namespace in (None, ref.namespace) and (labels or {}).items() <= labels_of(obj).items()
        ]

    def put(self, obj: Object) -> Object:
        """An object as the API server would keep it."""
        self.made += 1
        metadata = {
            "uid": f"{self.made:08x}-0000-4000-8000-0000000000ff",
            "creationTimestamp": timestamp(self.now),
        }
        content = {**copy.deepcopy(obj), "metadata": metadata | copy.deepcopy(obj["metadata"])}
        self.objects.setdefault(kind_of(obj), {})[ref_of(obj)] = content
        return content

    def remove(self, kind: Kind, ref: Ref) -> None:
        """Delete an object, and a Job's pods with it."""
        gone = self.objects[kind].pop(ref)
        for pod in self.pods_of(gone):
            del self.objects[POD][ref_of(pod)]

    def pods_of(self, owner: Object) -> list[Object]:
        """Pods of a Job."""
        return [
            pod
            for pod in self.objects.get(POD, {}).values()
            if pod["metadata"]["ownerReferences"][0]["uid"] == uid_of(owner)
        ]

    # The controller.

    def plan(self, settings: Settings = SETTINGS) -> Plan:
        """The plan for the agent as everything is now."""
        seen = observe(self, AGENT_REF)
        assert seen is not None
        seen = replace(seen, events=tuple(self.kubernetes_events))
        found = reconcile(seen, self.now, settings)
        if not found.awaits_signature:
            return found
        self.signatures += 1
        return reconcile(replace(seen, signing_key=self.signing_key), self.now, settings)

    def reconcile(self, settings: Settings = SETTINGS) -> Plan:
        """Plan and carry out."""
        found = self.plan(settings)
        for action in found.actions:
            if isinstance(action, DeleteAction):
                del self.objects[action.kind][action.ref]
            elif isinstance(action, MergeAction):
                self.set_suspend(action.ref.name, action.object["spec"]["suspend"], MANAGER)
            else:
                self.apply(action)
        self.events += found.events
        if found.status is not None:
            self.agent["status"] = copy.deepcopy(found.status)
        return found

    def apply(self, action: ApplyAction | CreateAction) -> None:
        kind, ref = kind_of(action.object), ref_of(action.object)
        known = self.get(kind, ref)
        if isinstance(action, ApplyAction) and action.manager == SUSPEND_MANAGER:
            assert known is not None
            assert uid_of(known) == action.object["metadata"]["uid"]
            suspends = action.object.get("spec", {}).get("suspend", False)
            others = set(suspend_managers(known)) - {SUSPEND_MANAGER}
            assert not (suspends and others), f"an API server refuses this: {others} have the field"
            self.set_suspend(ref.name, suspends, SUSPEND_MANAGER if suspends else None)
            return
        if known is not None and ref == POLICY_REF:
            known["data"] = copy.deepcopy(action.object["data"])
            return
        assert known is None, f"{kind} {ref} exists and is not to be touched"
        self.put(action.object)

    # What others do.

    @property
    def agent(self) -> Object:
        return self.objects[SILO_AGENT][AGENT_REF]

    @property
    def phase(self) -> str:
        return str(self.agent["status"]["phase"])

    @property
    def conditions(self) -> dict[str, tuple[str, str]]:
        return {
            found["type"]: (found["status"], found["reason"]) for found in self.agent["status"]["conditions"]
        }

    @property
    def message(self) -> str:
        return str(self.agent["status"]["message"])

    def job(self, component: str) -> Object | None:
        return self.get(JOB, Ref(AGENT_REF.namespace, f"{NAME}-{component}"))

    def set_suspend(self, name: str, suspend: bool, manager: str | None) -> None:
        """Somebody suspends or resumes a Job, and then owns that field; None where nobody does."""
        job = self.objects[JOB][Ref(AGENT_REF.namespace, name)]
        job["spec"]["suspend"] = suspend
        fields: Object = {"f:spec": {"f:suspend": {}}}
        job["metadata"]["managedFields"] = [{"manager": manager, "fieldsV1": fields}] if manager else []

    def suspend(self, suspend: bool) -> None:
        self.agent["spec"]["suspend"] = suspend
        self.agent["metadata"]["generation"] += 1

    def pod(self, component: str, **status: Any) -> Object:
        """A new pod of the component's Job."""
        job = self.job(component)
        assert job is not None
        return self.put(pod_of(job, f"{job['metadata']['name']}-{self.made}", **status))

    def run_all(self) -> None:
        """Every Job that may have a pod has one that runs."""
        for component in (TRAINER, GUARD):
            job = self.job(component)
            if job is None or job["spec"].get("suspend") or holds(job, "Complete") or holds(job, "Failed"):
                continue
            for pod in self.pods_of(job):
                del self.objects[POD][ref_of(pod)]
            self.pod(
                component,
                **RUNNING,
            )

    def end(self, component: str, condition: str, **content: Any) -> None:
        """A Job has come to its end."""
        job = self.job(component)
        assert job is not None
        since = {"lastTransitionTime": timestamp(self.now)}
        job.setdefault("status", {})["conditions"] = [
            {"type": condition, "status": "True", **since, **content}
        ]
        for pod in self.pods_of(job):
            if pod["status"]["phase"] not in ("Succeeded", "Failed"):
                pod["status"] = ended_status(0 if condition == "Complete" else 1)

    def pass_time(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


RUNNING: dict[str, Any] = {
    "phase": "Running",
    "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": timestamp(START)}],
    "containerStatuses": [{"ready": True, "state": {"running": {}}}],
}


def pod_of(job: Object, name: str, **status: Any) -> Object:
    """A pod as the Job controller makes it from the template."""
    template = job["spec"]["template"]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": job["metadata"]["namespace"],
            "labels": dict(template["metadata"]["labels"]),
            "ownerReferences": [
                {"uid": uid_of(job), "kind": "Job", "name": job["metadata"]["name"], "controller": True}
            ],
        },
        "spec": {**copy.deepcopy(template["spec"]), "nodeName": "gpu-1"},
        "status": copy.deepcopy(status),
    }


def ended_status(code: int, message: str = "", **more: Any) -> dict[str, Any]:
    """Status of a pod whose process has ended."""
    terminated = {
        "exitCode": code,
        "reason": "Completed" if code == 0 else "Error",
        "message": message,
    } | more
    return {
        "phase": "Succeeded" if code == 0 else "Failed",
        "containerStatuses": [{"ready": False, "state": {"terminated": terminated}}],
    }


def world(policy: Mapping[str, Any] | None = None, *, suspend: bool = False, **changes: Any) -> World:
    """An agent in its silo, nothing reconciled yet."""
    return World(agent(job_spec(**changes), suspend=suspend), silo(policy))


def started_world() -> World:
    """An agent whose pods run."""
    scene = world()
    scene.reconcile()
    scene.run_all()
    scene.reconcile()
    return scene


def applied_objects(plan: Plan) -> list[tuple[Kind, str]]:
    """Kind and name of what the plan applies."""
    actions = [action for action in plan.actions if isinstance(action, ApplyAction | CreateAction)]
    return [(kind_of(action.object), action.object["metadata"]["name"]) for action in actions]


def recorded_events(scene: World) -> list[tuple[str, str]]:
    """Type and reason of the events so far."""
    return [(event.type, event.reason) for event in scene.events]


def suspended(scene: World, component: str) -> bool:
    """Whether the component's Job is suspended."""
    job = scene.job(component)
    assert job is not None
    return bool(job["spec"].get("suspend"))


def stated_condition(name: str, status: str, reason: str, message: str) -> dict[str, Any]:
    """A condition in a status."""
    return {
        "type": name,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": "2026-03-01T12:00:00Z",
    }
