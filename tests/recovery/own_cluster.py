"""A silo in the institution's own cluster: the real connector over an API server, and a node that runs its Jobs."""

from __future__ import annotations

import base64
import json
import time
from datetime import UTC, datetime
from pathlib import Path

from fedsilo.api.invitation import SiloInvitation
from fedsilo.api.notations import Time
from fedsilo.api.observed import Object, holds, status_of, uid_of
from fedsilo.api.silo_status import HubAddress
from fedsilo.api.timestamps import timestamp
from fedsilo.local.run import GUARD, TRAINER
from fedsilo.local.workdir import RunDirectory
from fedsilo_operator.names import SIGNING_KEY
from fedsilo_operator.objects import AGENT, COMPONENT, CONFIG_MAP, JOB, SILO_AGENT, Ref, labels_of, ref_of
from tests.operator_fakes.cluster import FakeCluster
from tests.operator_fakes.served import ServedCluster
from tests.ports import free_port
from tests.recovery.hub import FAR_AWAY
from tests.recovery.supervisor import Part, Supervisor

CONNECTOR = "fedsilo_operator.connector.__main__"

PROGRAMS = {"guard": GUARD, "trainer": TRAINER}

SYNC_SECONDS = 0.1
"""Time between two looks of the node."""


class OwnCluster:
    """One silo of a run, whose guard and trainer are made by a silo controller and run in the run's own volume."""

    def __init__(self, root: Path, workdir: RunDirectory, silo: str) -> None:
        self.silo = silo
        self._root = root
        self._workdir = workdir
        self._volume = workdir.volume(silo)
        self._served = ServedCluster(root / "kubeconfig")
        self._next = 0.0

    def join(self, hub: HubAddress) -> Part:
        """The cluster as a release of the chart leaves it, with the key that has enrolled."""
        self._root.mkdir(parents=True)
        self._served.__enter__()
        silo = json.loads((self._volume.guard / "silo.json").read_text())
        silo.pop("status", None)  # which no release has
        namespace = silo["metadata"]["namespace"]
        key = base64.b64encode((self._volume.guard / "key.pem").read_bytes()).decode()
        metadata = {"namespace": namespace, "name": SIGNING_KEY}
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": {"key.pem": key}}
        self._served.ask(lambda held: [held.put(secret), held.put(silo, "helm")])
        invitation = self._root / "invitation.yaml"
        stated = SiloInvitation.of(hub, f"{namespace}/{self.silo}", "used", Time(FAR_AWAY))
        invitation.write_text(stated.to_yaml())
        arguments = ["--invitation", str(invitation), "--namespace", namespace]
        arguments += [f"--{role}-image=registry.example/fedsilo-{role}:1" for role in PROGRAMS]
        arguments += ["--health-port", str(free_port())]
        environment = {"KUBECONFIG": str(self._served.kubeconfig)}
        return Part(f"{self.silo}-connector", CONNECTOR, arguments, environment, endless=True)

    @property
    def finished(self) -> bool:
        """Whether the silo has done its part in the job."""
        agents = self._served.ask(lambda held: held.objects(SILO_AGENT))
        return bool(agents) and all(status_of(agent).get("phase") == "Finished" for agent in agents)

    def look(self, supervisor: Supervisor) -> None:
        """Do what a node does: run the pods of Jobs, and say how they end."""
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + SYNC_SECONDS
        for job in self._served.ask(lambda held: held.objects(JOB)):
            role = labels_of(job)[COMPONENT]
            part = supervisor.parts.get(f"{self.silo}-{role}")
            if part is None and not job["spec"].get("suspend"):
                self._served.ask(lambda held, job=job: self._start(held, job))  # type: ignore[misc]
                part = supervisor.parts[f"{self.silo}-{role}"] = self._part(role)
            if part is not None and part.code == 0 and not holds(job, "Complete"):
                self._served.ask(lambda held, job=job: _complete(held, job))  # type: ignore[misc]

    def show(self) -> None:
        """End the API server; the volume is where that of any other run is."""
        self._served.__exit__(None, None, None)

    def _start(self, held: FakeCluster, job: Object) -> None:
        ref = ref_of(job)
        files = held.peek(CONFIG_MAP, Ref(ref.namespace, labels_of(job)[AGENT]))["data"]
        for directory in (self._volume.root, self._volume.guard):
            for name, text in files.items():
                (directory / name).write_text(text)
        held.put(_pod(job, "Running"))

    def _part(self, role: str) -> Part:
        folder = self._volume.guard if role == "guard" else self._volume.root
        documents = ["--agent", str(folder / "agent.json"), "--silo", str(folder / "silo.json")]
        key = ["--key", str(self._volume.guard / "key.pem")] if role == "guard" else []
        arguments = [*documents, "--volume", str(self._volume.root), *key]
        return Part(f"{self.silo}-{role}", PROGRAMS[role], arguments)


def _pod(job: Object, phase: str) -> Object:
    ref, owner = ref_of(job), {"apiVersion": "batch/v1", "kind": "Job", "controller": True}
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": timestamp(datetime.now(UTC))}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "namespace": ref.namespace,
            "name": f"{ref.name}-0",
            "labels": job["spec"]["template"]["metadata"]["labels"],
            "ownerReferences": [{**owner, "name": ref.name, "uid": uid_of(job)}],
        },
        "spec": {},
        "status": {"phase": phase, "conditions": [ready] if phase == "Running" else []},
    }


def _complete(held: FakeCluster, job: Object) -> None:
    held.put(_pod(job, "Succeeded"))
    complete = {"type": "Complete", "status": "True", "lastTransitionTime": timestamp(datetime.now(UTC))}
    held.put({**job, "status": {"succeeded": 1, "conditions": [complete]}})
