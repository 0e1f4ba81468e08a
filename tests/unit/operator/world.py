"""What stands round the operator in a cluster: Job controller, kubelet, and the processes in the pods."""

from __future__ import annotations

import json
from random import Random
from typing import Any

from fedsilo.api.observed import Object, holds, uid_of
from fedsilo.api.timestamps import timestamp
from fedsilo_operator.cluster.interface import NotFound
from fedsilo_operator.objects import (
    COMPONENT,
    CONFIG_MAP,
    FEDERATED_JOB,
    JOB,
    JOB_UID,
    POD,
    SECRET,
    Kind,
    Ref,
    labels_of,
    ref_of,
)
from tests.operator_fakes.cluster import FakeCluster


class World:
    """A step does what all of them would do in a moment.

    :param crashes: how often an aggregator dies of a defect before it succeeds.
    :param rounds: steps in which aggregator and all agents run until the model is there.
    """

    def __init__(self, cluster: FakeCluster, random: Random, crashes: int = 0, rounds: int = 3) -> None:
        self.cluster = cluster
        self.crashes = crashes
        self.rounds = rounds
        self.may_end = True
        """Whether the last round may end."""
        self.fails: dict[str, dict[str, Any]] = {}
        """Component -> state in which its containers end."""
        self._random = random
        self._done: dict[str, int] = {}
        self._removed: set[Ref] = set()
        self._pods = 0

    def step(self) -> None:
        """Everybody does what is due, in any order."""
        self.cluster.collect_garbage()
        batches, pods = self._shuffled_objects(JOB), self._shuffled_objects(POD)
        for batch in batches:
            self._control(batch, [pod for pod in pods if _owner(pod) == uid_of(batch)])
        for pod in pods:
            if ref_of(pod) not in self._removed:
                self._keep(pod)
        for job in self.cluster.glance(FEDERATED_JOB):
            self._train(job)
        self._removed.clear()

    def _shuffled_objects(self, kind: Kind) -> list[Object]:
        objects = list(self.cluster.glance(kind))
        self._random.shuffle(objects)
        return objects

    def _control(self, batch: Object, pods: list[Object]) -> None:
        """The Job controller of kube-controller-manager, for one completion and no parallelism."""
        if holds(batch, "Complete") or holds(batch, "Failed"):
            return
        ended = [pod for pod in pods if _phase(pod) in ("Succeeded", "Failed")]
        active = [pod for pod in pods if pod not in ended]
        failed = [pod for pod in ended if _phase(pod) == "Failed"]
        if any(_phase(pod) == "Succeeded" for pod in ended):
            self._end_job(batch, "Complete", "CompletionsReached", len(failed))
        elif any(_exit_code(pod) in _final_exit_codes(batch) for pod in failed):
            self._end_job(batch, "Failed", "PodFailurePolicy", len(failed))
        elif len(failed) > batch["spec"]["backoffLimit"]:
            self._end_job(batch, "Failed", "BackoffLimitExceeded", len(failed))
        elif batch["spec"].get("suspend"):
            for pod in active:
                self.cluster.remove(POD, ref_of(pod))
                self._removed.add(ref_of(pod))
        elif not active:
            self._make_pod(batch)

    def _end_job(self, batch: Object, condition: str, reason: str, failed: int) -> None:
        found = {"type": condition, "status": "True", "reason": reason, "message": f"Job has ended: {reason}"}
        self.cluster.put(batch | {"status": {"failed": failed, "conditions": [found]}}, "job-controller")

    def _make_pod(self, batch: Object) -> None:
        self._pods += 1
        template = batch["spec"]["template"]
        self.cluster.put(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "name": f"{batch['metadata']['name']}-{self._pods}",
                    "namespace": batch["metadata"]["namespace"],
                    "labels": template["metadata"]["labels"],
                    "ownerReferences": [
                        {
                            "apiVersion": "batch/v1",
                            "kind": "Job",
                            "name": ref_of(batch).name,
                            "uid": uid_of(batch),
                            "controller": True,
                        }
                    ],
                },
                "spec": template["spec"] | self._node_of_new(batch),
                "status": {"phase": "Pending"},
            },
            "job-controller",
        )

    def _node_of_new(self, _batch: Object) -> Object:
        """Act as the scheduler, which has a node for every pod as soon as it is made."""
        return {"nodeName": "node-1"}

    def _keep(self, pod: Object) -> None:
        """Act as the kubelet: pods start when it comes to it, and fail as the test wants."""
        component = labels_of(pod)[COMPONENT]
        if _phase(pod) == "Pending" and (lacking := self._lacking(pod)):
            self._warn(pod, f'MountVolume.SetUp failed for volume "x" : {lacking} not found')
        elif _phase(pod) == "Pending" and self._random.random() < 0.7:
            self._say(pod, "Running", {"running": {}})
        elif _phase(pod) == "Running" and component in self.fails:
            self._say(pod, "Failed", {"terminated": self.fails[component]})
        elif _phase(pod) == "Running" and component == "aggregator" and self.crashes:
            self.crashes -= 1
            self._say(pod, "Failed", {"terminated": {"exitCode": 1}})

    def _lacking(self, pod: Object) -> str:
        """What the pod mounts and is not there."""
        volumes = pod["spec"]["volumes"]
        wanted = [(CONFIG_MAP, "configMap", "name"), (SECRET, "secret", "secretName")]
        for kind, source, field in wanted:
            for name in [volume[source][field] for volume in volumes if source in volume]:
                if not _is_there(self.cluster, kind, Ref(pod["metadata"]["namespace"], name)):
                    return f'{kind.name.lower()} "{name}"'
        return ""

    def _warn(self, pod: Object, message: str) -> None:
        name = f"{pod['metadata']['name']}.mount"
        involved = {"kind": "Pod", "uid": uid_of(pod)}
        self.cluster.put(
            {
                "apiVersion": "v1",
                "kind": "Event",
                "metadata": {"name": name, "namespace": pod["metadata"]["namespace"]},
                "involvedObject": involved,
                "reason": "FailedMount",
                "message": message,
                "lastTimestamp": timestamp(self.cluster.now()),
            },
            "kubelet",
        )

    def _train(self, job: Object) -> None:
        """Aggregator, guards and trainers: when all have run together for long enough, they are done."""
        uid = uid_of(job)
        pods = [pod for pod in self.cluster.glance(POD) if labels_of(pod)[JOB_UID] == uid]
        running = [pod for pod in pods if _phase(pod) == "Running"]
        ours = [pod for pod in running if labels_of(pod)[COMPONENT] == "aggregator"]
        if not ours:
            return
        needed = 2 * self._quorum(job)
        done = self._done.get(uid, 0)
        if done < self.rounds - (not self.may_end) and len(running) - len(ours) >= needed:
            self._done[uid] = done + 1
            status = job["status"] | {"round": done + 1, "progress": f"{done + 1}/{self.rounds}"}
            self.cluster.put(job | {"status": status}, "fedsilo-aggregator")
        elif done >= self.rounds:
            for pod in running:
                if pod not in ours:
                    self._say(pod, "Succeeded", {"terminated": {"exitCode": 0}})
            if self._agents_done(uid) >= needed:
                self._say(ours[0], "Succeeded", {"terminated": {"exitCode": 0}})

    def _quorum(self, job: Object) -> int:
        """Silos that a round needs."""
        return len(job["status"]["silos"])

    def _agents_done(self, uid: str) -> int:
        batches = [batch for batch in self.cluster.glance(JOB) if labels_of(batch)[JOB_UID] == uid]
        return sum(
            labels_of(batch)[COMPONENT] != "aggregator" and holds(batch, "Complete") for batch in batches
        )

    def _say(self, pod: Object, phase: str, state: Object) -> None:
        ready = "True" if phase == "Running" else "False"
        now = timestamp(self.cluster.now())
        status = {
            "phase": phase,
            "conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": now}],
            "containerStatuses": [{"name": "main", "ready": phase == "Running", "state": state}],
        }
        self.cluster.put(pod | {"status": status}, "kubelet")


def termination(code: int, reason: str, message: str) -> dict[str, Any]:
    """How a container ends that has left its own words."""
    return {"exitCode": code, "message": json.dumps({"reason": reason, "message": message})}


def _is_there(cluster: FakeCluster, kind: Kind, ref: Ref) -> bool:
    try:
        cluster.peek(kind, ref)
    except NotFound:
        return False
    return True


def _owner(pod: Object) -> str:
    return str(pod["metadata"]["ownerReferences"][0]["uid"])


def _phase(pod: Object) -> str:
    return str(pod["status"]["phase"])


def _exit_code(pod: Object) -> int:
    state = pod["status"].get("containerStatuses", [{}])[0].get("state", {})
    return int(state.get("terminated", {}).get("exitCode", 0))


def _final_exit_codes(batch: Object) -> list[int]:
    rules = batch["spec"]["podFailurePolicy"]["rules"]
    return [code for rule in rules if "onExitCodes" in rule for code in rule["onExitCodes"]["values"]]
