"""The environment of an operator under load: institutions, jobs, and stand-ins for kubelets and aggregators.

Both stand-ins are reconcilers on the operator's own runtime, with an administrator's rights.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime

from fedsilo.api.observed import Object, status_of, uid_of
from fedsilo.api.status import FederatedJobStatus, ModelStatus, SiloStatusEntry
from fedsilo.api.timestamps import timestamp
from fedsilo.engine.record import curve
from fedsilo_aggregator.apiserver import MANAGER as AGGREGATOR
from fedsilo_aggregator.report import aggregator_fields
from fedsilo_operator.cluster.connection import MERGE, Connection
from fedsilo_operator.cluster.interface import Cluster, Conflict, NotFound
from fedsilo_operator.objects import (
    FEDERATED_JOB,
    JOB_NAME,
    JOB_NAMESPACE,
    JOB_UID,
    MANAGED_BY,
    MANAGER,
    POD,
    SILO_KIND,
    Ref,
    is_deleted,
    labels_of,
    ref_of,
)
from fedsilo_operator.runtime.controller import Watch
from fedsilo_operator.runtime.queue import Key
from fedsilo_operator.runtime.store import Store
from hack.examples import documents

HUB = "federation"
NODE = "node-1"


def silos(count: int) -> list[Object]:
    """Institutions with a namespace each, as those of an example."""
    pattern = next(item for item in documents("fedavg.yaml") if item["kind"] == SILO_KIND.name)
    return [
        pattern | {"metadata": {"namespace": f"silo-{number}", "name": f"s{number}"}}
        for number in range(count)
    ]


def jobs(count: int, members: Sequence[Object]) -> list[Object]:
    """Jobs in one namespace, each with all the silos."""
    pattern = next(item for item in documents("fedavg.yaml") if item["kind"] == FEDERATED_JOB.name)
    pattern["spec"]["silos"] = {
        "refs": [{name: silo["metadata"][name] for name in ("namespace", "name")} for silo in members]
    }
    pattern["spec"]["training"]["rounds"] = 1000
    pattern["spec"]["participation"] = {"minSilos": len(members), "roundDeadline": "2m"}
    return [
        copy.deepcopy(pattern) | {"metadata": {"namespace": HUB, "name": f"job-{number}"}}
        for number in range(count)
    ]


class Kubelet:
    """Scheduler and kubelet of a federation: pods run as soon as they are there, and end well when their job has a
    model.
    """

    name = "kubelet"

    def __init__(self, connection: Connection, store: Store) -> None:
        self._connection = connection
        self._store = store

    def watches(self) -> Sequence[Watch]:
        """Pods, and jobs that are over."""
        return (
            Watch(POD, f"{MANAGED_BY}={MANAGER}", lambda pod: (Key(POD, ref_of(pod)),)),
            Watch(FEDERATED_JOB, "", self._pods_of),
        )

    def _pods_of(self, job: Object) -> Iterator[Key]:
        if _has_model(job):
            for pod in self._store.select(POD, labels={JOB_UID: uid_of(job)}):
                yield Key(POD, ref_of(pod))

    async def reconcile(self, key: Key) -> float | None:
        """One step of one pod; what the step changes brings the next."""
        pod = self._store.get(POD, key.ref)
        if pod is None:
            return None
        phase = pod["status"]["phase"]
        with suppress(NotFound, Conflict):  # both mean that the cache is behind
            if is_deleted(pod):
                await self._remove(pod)
            elif "nodeName" not in pod["spec"]:
                await self._bind(pod)
            elif phase == "Pending":
                await self._say(pod, "Running", {"running": {"startedAt": _now()}})
            elif phase == "Running" and self._is_over(pod):
                await self._say(pod, "Succeeded", {"terminated": {"exitCode": 0, "finishedAt": _now()}})
        return None

    def _is_over(self, pod: Object) -> bool:
        labels = labels_of(pod)
        job = self._store.get(FEDERATED_JOB, Ref(labels[JOB_NAMESPACE], labels[JOB_NAME]))
        return job is not None and _has_model(job)

    async def _bind(self, pod: Object) -> None:
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": pod["metadata"]["name"]},
            "target": {"apiVersion": "v1", "kind": "Node", "name": NODE},
        }
        await self._connection.call("POST", f"{_path(pod)}/binding", body=body)

    async def _remove(self, pod: Object) -> None:
        if pod["status"]["phase"] not in ("Succeeded", "Failed"):
            await self._say(pod, "Failed", {"terminated": {"exitCode": 143, "finishedAt": _now()}})
        body = {"gracePeriodSeconds": 0, "preconditions": {"uid": uid_of(pod)}}
        await self._connection.call("DELETE", _path(pod), body=body)

    async def _say(self, pod: Object, phase: str, state: Object) -> None:
        ready = {"type": "Ready", "status": str(phase == "Running"), "lastTransitionTime": _now()}
        container = pod["spec"]["containers"][0]
        status = {
            "phase": phase,
            "startTime": _now(),
            "conditions": [ready],
            "containerStatuses": [
                {
                    "name": container["name"],
                    "image": container["image"],
                    "imageID": "",
                    "ready": phase == "Running",
                    "restartCount": 0,
                    "state": state,
                }
            ],
        }
        body = {"metadata": {"uid": uid_of(pod)}, "status": status}
        await self._connection.call("PATCH", f"{_path(pod)}/status", body=body, content=MERGE)


class Aggregators:
    """An aggregator per running job: a report of every answer of a silo, and in the end a model.

    :param period: seconds between two answers.
    """

    name = "aggregator"

    def __init__(self, cluster: Cluster, store: Store, period: float) -> None:
        self._cluster = cluster
        self._store = store
        self._period = period
        self._answers: dict[Ref, int] = {}
        self.finishing = False
        """Whether the next report is the last."""
        self.silent = False
        self.reports = 0

    def watches(self) -> Sequence[Watch]:
        """Watches of the federated jobs."""
        return (Watch(FEDERATED_JOB, "", self._started_job_key),)

    def _started_job_key(self, job: Object) -> Iterable[Key]:
        """The job's key when the job begins to run, once: the aggregator's own reports change the job, too."""
        if status_of(job).get("phase") == "Running" and ref_of(job) not in self._answers:
            self._answers[ref_of(job)] = 0
            yield Key(FEDERATED_JOB, ref_of(job))

    async def reconcile(self, key: Key) -> float | None:
        """The next report of one aggregator."""
        answers = self._answers[key.ref]
        if answers == 0:  # they do not all report at the same time
            self._answers[key.ref] = 1
            return random.uniform(0, self._period)
        if self.silent and not self.finishing:
            return self._period
        job = await self._cluster.get(FEDERATED_JOB, key.ref)
        body = {
            "apiVersion": job["apiVersion"],
            "kind": job["kind"],
            "metadata": {name: job["metadata"][name] for name in ("namespace", "name", "resourceVersion")},
            "status": aggregator_fields(self._status(job, answers), f"{key.ref.name}-claim"),
        }
        try:
            await self._cluster.apply(body, manager=AGGREGATOR, status=True)
        except Conflict:
            return 0.1
        self._answers[key.ref] += 1
        self.reports += 1
        return None if self.finishing else self._period

    def _status(self, job: Object, answers: int) -> FederatedJobStatus:
        names = [silo["name"] for silo in job["spec"]["silos"]["refs"]]
        done, answered = divmod(answers, len(names))
        began = (job["status"].get("roundStartTime") if answered else None) or _now()
        rounds = job["spec"]["training"]["rounds"]
        return FederatedJobStatus(
            round=done,
            rounds=rounds,
            progress=f"{done}/{rounds}",
            silo_progress=f"{answered}/{len(names)}",
            step="train",
            round_start_time=began,
            round_deadline=began,
            metrics={"accuracy": random.random(), "loss": random.random()},
            training={"loss": random.random()},
            curve=curve([_line(number + 1) for number in range(done)]),
            parameters=62_006,
            model=ModelStatus(path="model.safetensors", sha256="0" * 64) if self.finishing else None,
            silos=tuple(
                SiloStatusEntry(
                    name=name,
                    state="Training",
                    last_round=done,
                    samples=1000,
                    bytes_sent=250_000 * (done + (number < answered)),
                    update=f"{done:064x}",
                )
                for number, name in enumerate(names)
            ),
        )


def _line(number: int) -> Object:
    """A round of the history, as far as a learning curve needs it."""
    figures = {"metrics": {"accuracy": number / 1000, "loss": 1 / number}, "training": {"loss": 1 / number}}
    return {"round": number, **figures}


def _has_model(job: Object) -> bool:
    return "model" in status_of(job)


def _path(pod: Object) -> str:
    ref = ref_of(pod)
    return f"/api/v1/namespaces/{ref.namespace}/pods/{ref.name}"


def _now() -> str:
    return timestamp(datetime.now(UTC))
