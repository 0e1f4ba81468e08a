"""A cluster with fewer GPUs than the jobs ask for, whose nodes are drained, and whose queues suspend Jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from random import Random

from typing_extensions import override

from fedsilo.api.observed import Object, holds, status_of, uid_of
from fedsilo.api.timestamps import parse_timestamp, timestamp
from fedsilo_operator.objects import (
    AGENT,
    COMPONENT,
    FEDERATED_JOB,
    JOB,
    JOB_UID,
    POD,
    SILO_KIND,
    labels_of,
    ref_of,
)
from fedsilo_operator.workloads.suspension import QUEUE, is_suspended
from tests.operator_fakes.cluster import FakeCluster
from tests.unit.operator.job.objects import START
from tests.unit.operator.world import World, termination

GPU = "nvidia.com/gpu"
ROUND, DRIFT = timedelta(minutes=10), timedelta(seconds=30)
"""Longest wait for a round, `participation.roundDeadline`, and how far its end drifts before the status says so."""

PERSON, KUEUE = "kubectl-edit", "kueue"


@dataclass
class Suspension:
    """A trainer's Job that a person has suspended, until that person resumes it."""

    job: str
    until: datetime


@dataclass
class CrowdedWorld(World):
    """A world in which a silo has so many GPUs, and may have a queue that hands them out.

    :param gpus: by namespace, GPUs of its nodes.
    :param quotas: by namespace, GPUs that a queue hands out there; no queue where there is none.
    """

    cluster: FakeCluster
    random: Random
    gpus: Mapping[str, int]
    quotas: Mapping[str, int]
    drained: dict[str, datetime] = field(default_factory=dict)
    suspensions: list[Suspension] = field(default_factory=list)
    _looked: dict[str, datetime] = field(default_factory=dict)
    _served: dict[str, tuple[int, timedelta]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__init__(self.cluster, self.random)

    @override
    def step(self) -> None:
        self.drained = {name: until for name, until in self.drained.items() if until > self.cluster.now()}
        self._resume_by_hand()
        for namespace in self.quotas:
            self._queue(namespace)
        super().step()
        for job in self.cluster.glance(FEDERATED_JOB):
            self._time_round(job)

    # What happens to it.

    def drain(self, namespace: str, seconds: float) -> None:
        """A silo's nodes are drained, and come back after a while."""
        self.drained[namespace] = self.cluster.now() + timedelta(seconds=seconds)
        for pod in self._live_pods(namespace):
            self.cluster.remove(POD, ref_of(pod))

    def suspend_by_hand(self, seconds: float) -> None:
        """A person suspends some trainer, and resumes it after a while."""
        batches = [
            batch for batch in self._trainers() if not is_suspended(batch) and QUEUE not in labels_of(batch)
        ]
        if not batches:
            return
        batch = self.random.choice(batches)
        self._set_suspend(batch, True, PERSON)
        until = self.cluster.now() + timedelta(seconds=seconds)
        self.suspensions.append(Suspension(uid_of(batch), until))

    def _resume_by_hand(self) -> None:
        due = {one.job for one in self.suspensions if one.until <= self.cluster.now()}
        self.suspensions = [one for one in self.suspensions if one.job not in due]
        for batch in self._trainers():
            if uid_of(batch) in due and is_suspended(batch):
                self._set_suspend(batch, False, PERSON)

    # A queue, as Kueue is one.

    def _queue(self, namespace: str) -> None:
        """Suspend what is new, and resume what there is room for, in the order in which it came."""
        batches = [batch for batch in self._trainers() if ref_of(batch).namespace == namespace]
        for batch in batches:
            if QUEUE not in labels_of(batch):
                labels = {**labels_of(batch), QUEUE: "team"}
                self._set_suspend(batch | {"metadata": batch["metadata"] | {"labels": labels}}, True, KUEUE)
        batches = [batch for batch in self._trainers() if ref_of(batch).namespace == namespace]
        batches.sort(key=lambda batch: (batch["metadata"]["creationTimestamp"], uid_of(batch)))
        free = self.quotas[namespace] - sum(_gpus(batch) for batch in batches if not is_suspended(batch))
        for batch in batches:
            if is_suspended(batch) and _gpus(batch) <= free:
                free -= _gpus(batch)
                self._set_suspend(batch, False, KUEUE)

    def _set_suspend(self, batch: Object, suspend: bool, manager: str) -> None:
        spec = {**batch["spec"], "suspend": suspend}
        self.cluster.put({**batch, "spec": spec, "status": None}, manager)

    def _trainers(self) -> Iterator[Object]:
        """The Jobs of trainers that are not over."""
        for batch in list(self.cluster.glance(JOB)):
            over = holds(batch, "Complete") or holds(batch, "Failed")
            if labels_of(batch)[COMPONENT] == "trainer" and not over:
                yield batch

    # The scheduler.

    @override
    def _node_of_new(self, batch: Object) -> Object:
        return {"nodeName": "node-1"} if labels_of(batch)[COMPONENT] == "aggregator" else {}

    @override
    def _keep(self, pod: Object) -> None:
        if "nodeName" in pod["spec"]:
            super()._keep(pod)
        elif self._fits(pod):
            self.cluster.put({**pod, "spec": {**pod["spec"], "nodeName": "node-1"}}, "scheduler")
        else:
            found = {
                "type": "PodScheduled",
                "status": "False",
                "reason": "Unschedulable",
                "message": f"0/1 nodes are available: 1 Insufficient {GPU}.",
            }
            self.cluster.put({**pod, "status": {"phase": "Pending", "conditions": [found]}}, "scheduler")

    def _fits(self, pod: Object) -> bool:
        """Whether a node takes the pod: one with free GPUs, a guard beside its trainer."""
        namespace = ref_of(pod).namespace
        if namespace in self.drained:
            return False
        placed = [other for other in self._live_pods(namespace) if "nodeName" in other["spec"]]
        if labels_of(pod)[COMPONENT] == "guard":
            agent = labels_of(pod)[AGENT]
            trainers = [other for other in placed if labels_of(other)[COMPONENT] == "trainer"]
            return any(labels_of(other)[AGENT] == agent for other in trainers)
        used = sum(_gpus_of(other["spec"]) for other in placed)
        return used + _gpus_of(pod["spec"]) <= self.gpus[namespace]

    def _live_pods(self, namespace: str) -> list[Object]:
        """Pods in a namespace that have not ended."""
        return [
            pod
            for pod in self.cluster.glance(POD)
            if ref_of(pod).namespace == namespace and pod["status"]["phase"] in ("Pending", "Running")
        ]

    # The aggregator, and its clock.

    @override
    def _quorum(self, job: Object) -> int:
        return int(job["spec"].get("participation", {}).get("minSilos") or super()._quorum(job))

    def _time_round(self, job: Object) -> None:
        """While an aggregator runs, its round's time passes; a round that ends without a quorum fails the job."""
        uid, now, status = uid_of(job), self.cluster.now(), status_of(job)
        passed, self._looked[uid] = now - self._looked.get(uid, now), now
        ours = [
            pod
            for pod in self.cluster.glance(POD)
            if labels_of(pod)[JOB_UID] == uid and labels_of(pod)[COMPONENT] == "aggregator"
        ]
        running = [pod for pod in ours if pod["status"]["phase"] == "Running"]
        if not running:
            return
        asked = status.get("round", 0)
        number, served = self._served.get(uid, (asked, timedelta()))
        served = served + passed if number == asked else timedelta()
        self._served[uid] = asked, served
        end = now + ROUND - served
        if served > ROUND:
            end_state = termination(4, "DeadlineExceeded", "too few silos had answered at the deadline")
            self._say(running[0], "Failed", {"terminated": end_state})
        elif abs(end - parse_timestamp(status.get("roundDeadline", timestamp(START)))) > DRIFT:
            stated = {**status, "roundDeadline": timestamp(end)}
            self.cluster.put({**job, "status": stated}, "fedsilo-aggregator")

    def feasible(self, job: Object) -> bool:
        """Whether the job's silos have as many GPUs as it asks for, when nobody else is there."""
        asked: Counter[str] = Counter()
        for silo in self.cluster.glance(SILO_KIND):
            namespace = ref_of(silo).namespace
            limits = silo["spec"].get("agent", {}).get("resources", {}).get("limits", {})
            asked[namespace] = int(limits.get(GPU, 0))
        names = [ref["namespace"] for ref in job["spec"]["silos"]["refs"]]
        return all(asked[name] <= min(self.gpus[name], self.quotas.get(name, 99)) for name in names)


def _gpus(batch: Object) -> int:
    return _gpus_of(batch["spec"]["template"]["spec"])


def _gpus_of(pod: Object) -> int:
    limits = pod["containers"][0].get("resources", {}).get("limits", {})
    return int(limits.get(GPU, 0))
