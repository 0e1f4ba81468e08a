"""A cluster in which one plan after the other is carried out."""

from __future__ import annotations

import asyncio
import atexit
from collections.abc import Coroutine, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from functools import cache
from typing import Any

from fedsilo.api.observed import Object, uid_of
from fedsilo.api.timestamps import timestamp
from fedsilo_operator.cluster.interface import CallRefused, ClusterError
from fedsilo_operator.job.assess import assess
from fedsilo_operator.job.observe import JobObservation, observe
from fedsilo_operator.job.reconcile import reconcile
from fedsilo_operator.job.state import JobState
from fedsilo_operator.names import agent_name, aggregator_name
from fedsilo_operator.objects import (
    EVENT,
    FEDERATED_JOB,
    JOB,
    KINDS,
    POD,
    SILO_AGENT,
    Kind,
    Ref,
    labels_of,
    ref_of,
)
from fedsilo_operator.plan import Plan
from fedsilo_operator.rejections import Rejection
from fedsilo_operator.runtime.executor import carry_out
from tests.operator_fakes.cluster import FakeCluster
from tests.unit.operator.job.objects import JOB_REF, NORTH, SETTINGS, SOUTH, START, manifest, silo, word


def at_once(work: Coroutine[Any, Any, Any]) -> None:
    """Run what never really waits, on one event loop for all: one for each of thousands of steps would cost more."""
    _loop().run_until_complete(work)


@cache
def _loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    atexit.register(loop.close)
    return loop


class View:
    """The cluster as a cache that is never behind."""

    def __init__(self, cluster: FakeCluster) -> None:
        self._cluster = cluster

    def get(self, kind: Kind, ref: Ref) -> Object | None:
        return next((obj for obj in self._cluster.objects(kind) if ref_of(obj) == ref), None)

    def select(
        self, kind: Kind, *, namespace: str | None = None, labels: Mapping[str, str] | None = None
    ) -> Iterable[Object]:
        wanted = (labels or {}).items()
        return [
            obj
            for obj in self._cluster.objects(kind)
            if namespace in (None, ref_of(obj).namespace) and wanted <= labels_of(obj).items()
        ]


class JobHarness:
    """One job in a cluster; the test plays everybody but the job controller."""

    def __init__(self, job: Object | None = None, silos: Iterable[Object] | None = None) -> None:
        self.now = START
        self.settings = SETTINGS
        self.cluster = FakeCluster(now=lambda: self.now)
        self.cluster.put(manifest() if job is None else job)
        for one in (silo(NORTH), silo(SOUTH)) if silos is None else silos:
            self.cluster.put(one)
        self._pods = 0
        self.refusing: Any = None

    # The operator.

    def current_observation(self) -> JobObservation | None:
        found = observe(View(self.cluster), JOB_REF)
        if found is None:
            return None
        events = tuple(
            event
            for event in self.cluster.objects(EVENT)
            if event["involvedObject"].get("kind") in ("Pod", "Job")
        )
        return JobObservation(**{**vars(found), "events": events})

    def plan(self) -> Plan:
        """What would be done now."""
        seen = self.current_observation()
        return Plan() if seen is None else reconcile(seen, self.now, self.settings)

    def step(self) -> Plan:
        """One reconcile, a second after the last."""
        self.now += timedelta(seconds=1)
        seen = self.current_observation()
        if seen is None:
            return Plan()
        decided = [Plan()]

        def decide(rejections: tuple[Rejection, ...]) -> Plan:
            decided.append(reconcile(replace(seen, rejections=rejections), self.now, self.settings))
            return decided[-1]

        with suppress(CallRefused):
            at_once(carry_out(decide, seen.job, self.cluster))
        return decided[-1]

    def settle(self) -> None:
        """Reconcile until nothing is left to do, which must not take long."""
        for _ in range(8):
            writes = len(self.cluster.writes)
            if self.step().settled or (self.refusing and len(self.cluster.writes) == writes):
                return
        raise AssertionError(f"never settles: {self.plan()}")

    def refuse_writes(self, error: ClusterError, kind: Kind, *namespaces: str) -> None:
        """From now on the API server takes no object of that kind there; none at all any more, to make it stop."""
        self.refusing = kind, namespaces
        self.cluster.refuses = lambda obj: (
            error if (obj["kind"] == kind.name and ref_of(obj).namespace in namespaces) else None
        )

    # What the others do.

    @property
    def job(self) -> Object:
        return self.cluster.peek(FEDERATED_JOB, JOB_REF)

    @property
    def uid(self) -> str:
        return uid_of(self.job)

    def all_objects(self) -> dict[Kind, tuple[Object, ...]]:
        """All objects by kind."""
        return {kind: tuple(self.cluster.objects(kind)) for kind in KINDS.values()}

    def change(self, **spec: Any) -> None:
        """A person edits the job."""
        job = self.job
        self.cluster.put(job | {"spec": job["spec"] | spec, "status": None})

    def agent(self, ref: Ref) -> Object:
        return self.cluster.peek(SILO_AGENT, Ref(ref.namespace, agent_name(JOB_REF, self.uid, ref)))

    def agents(self) -> list[str]:
        """Silos that have an agent."""
        return [agent["spec"]["silo"]["name"] for agent in self.cluster.objects(SILO_AGENT)]

    def say(self, ref: Ref, phase: str, **conditions: tuple[str, str, str]) -> None:
        """The silo controller says what it found: status, reason and message of each condition."""
        found = [
            {
                "type": name,
                "status": status,
                "reason": reason,
                "message": message,
                "lastTransitionTime": timestamp(self.now),
            }
            for name, (status, reason, message) in conditions.items()
        ]
        message = found[-1]["message"] if found else ""
        agent = self.agent(ref)
        status = {"phase": phase, "message": message, "conditions": found}
        if conditions.get("Admitted", ("",))[0] == "True":
            status |= word(agent)
        self.cluster.put(agent | {"status": status}, "fedsilo-operator")

    def admit(self, *refs: Ref) -> None:
        for ref in refs:
            self.say(ref, "Admitted", Admitted=("True", "Admitted", f"Silo {ref.name} admits the job."))

    def refuse(self, ref: Ref, reason: str = "PolicyRefused", message: str = "") -> None:
        text = message or f"Silo {ref.name}: policy.methods allows ccvr, not fedavg; use one of these."
        self.say(ref, "Refused", Admitted=("False", reason, text))

    def run(self, *refs: Ref) -> None:
        for ref in refs:
            self.say(
                ref,
                "Running",
                Admitted=("True", "Admitted", f"Silo {ref.name} admits the job."),
                Ready=("True", "Running", "Guard and trainer run."),
            )

    def fail(
        self, ref: Ref, message: str = "The trainer ended with exit code 3.", reason: str = "DataInvalid"
    ) -> None:
        self.say(
            ref,
            "Failed",
            Admitted=("True", "Admitted", f"Silo {ref.name} admits the job."),
            Ready=("False", reason, message),
            Failed=("True", reason, message),
        )

    def finish(self, ref: Ref) -> None:
        self.say(
            ref,
            "Finished",
            Admitted=("True", "Admitted", f"Silo {ref.name} admits the job."),
            Ready=("False", "Finished", "The job is over for this silo."),
            Finished=("True", "Finished", "The job is over for this silo."),
        )

    def batch(self) -> Object:
        """The Job object of the aggregator."""
        return self.cluster.peek(JOB, Ref(JOB_REF.namespace, aggregator_name(JOB_REF)))

    def pod(self, phase: str, **state: Any) -> Object:
        """Put the aggregator's pod into a phase: a new one, unless the last is alive."""
        batch = self.batch()
        owner = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "name": ref_of(batch).name,
            "uid": uid_of(batch),
            "controller": True,
        }
        alive = [
            pod
            for pod in self.cluster.objects(POD)
            if pod["status"]["phase"] in ("Pending", "Running")
            and pod["metadata"]["ownerReferences"][0]["uid"] == uid_of(batch)
        ]
        if not alive:
            self._pods += 1
        template = batch["spec"]["template"]
        ready = {"type": "Ready", "status": "True" if phase == "Running" else "False"}
        return self.cluster.put(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "name": ref_of(alive[0]).name if alive else f"digits-aggregator-{self._pods}",
                    "namespace": JOB_REF.namespace,
                    "labels": template["metadata"]["labels"],
                    "ownerReferences": [owner],
                },
                "spec": template["spec"] | {"nodeName": "node-1"},
                "status": {
                    "phase": phase,
                    "conditions": [ready | {"lastTransitionTime": timestamp(self.now)}],
                    "containerStatuses": [
                        {"name": "aggregator", "ready": phase == "Running", "state": state}
                    ],
                },
            },
            "kubelet",
        )

    def end(self, condition: str, reason: str = "", failed: int = 0) -> None:
        """The Job controller says how the aggregator's Job ended."""
        found = {"type": condition, "status": "True", "reason": reason, "message": f"Job ended: {reason}"}
        self.cluster.put(self.batch() | {"status": {"conditions": [found], "failed": failed}}, "kubelet")

    def warn(self, about: Object, reason: str, message: str) -> None:
        """An Event of scheduler, kubelet or Job controller."""
        self._pods += 1
        involved = {"kind": about["kind"], "uid": uid_of(about), "name": about["metadata"]["name"]}
        self.cluster.put(
            {
                "apiVersion": "v1",
                "kind": "Event",
                "metadata": {"name": f"event-{self._pods}", "namespace": JOB_REF.namespace},
                "involvedObject": involved,
                "type": "Warning",
                "reason": reason,
                "message": message,
                "lastTimestamp": timestamp(self.now + timedelta(seconds=1)),
            },
            "kubelet",
        )

    def start_job(self) -> JobHarness:
        """Up to the resumption of the agents."""
        self.settle()
        self.admit(*(Ref(f"silo-{name}", name) for name in self.agents()))
        self.settle()
        return self

    def running(self) -> JobHarness:
        """Up to a running aggregator."""
        self.start_job()
        self.run(*(Ref(f"silo-{name}", name) for name in self.agents()))
        self.settle()
        self.pod("Running", running={})
        self.settle()
        return self

    # What a person sees.

    def condition(self, name: str) -> tuple[str, str, str] | None:
        """Status, reason and message."""
        found = [item for item in self.job["status"]["conditions"] if item["type"] == name]
        return (found[0]["status"], found[0]["reason"], found[0]["message"]) if found else None

    def phase(self) -> str:
        return str(self.job["status"]["phase"])

    def events(self) -> list[tuple[str, str]]:
        """Type and reason of what was recorded about the job, in order."""
        found = [
            event
            for event in self.cluster.objects(EVENT)
            if event["involvedObject"].get("kind") == "FederatedJob"
        ]
        found.sort(key=lambda event: int(event["metadata"]["resourceVersion"]))
        return [(event["type"], event["reason"]) for event in found]


def state_of(harness: JobHarness) -> JobState:
    """What the operator makes of the cluster as it is."""
    seen = harness.current_observation()
    assert seen is not None
    return assess(seen, harness.settings, harness.now)


def complete(harness: JobHarness) -> JobHarness:
    """The aggregator of this job has ended well, and the operator has seen it."""
    harness.pod("Succeeded", terminated={"exitCode": 0})
    harness.end("Complete")
    harness.settle()
    return harness
