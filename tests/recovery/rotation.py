"""A silo in its own cluster replaces its key while a job runs, which ends with the old key; the next one has the new.

The guard is killed in the middle of a round and comes back when the hub has taken the new key, so that it has to find
the old one again.
"""

from __future__ import annotations

import base64
import shutil
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from typing_extensions import override

from fedsilo.api.annotations import ROTATE_KEY
from fedsilo.api.loading import JobManifest
from fedsilo.api.observed import Object, status_of
from fedsilo.api.silo_status import HubAddress
from fedsilo.local.workdir import RunDirectory
from fedsilo.wire import SigningKey, VerifyKey
from fedsilo_operator.names import SIGNING_KEY
from fedsilo_operator.objects import MANAGED_BY, MANAGER, SECRET, SILO_AGENT, SILO_KIND, Ref, ref_of
from tests.faults.manifests import SILOS
from tests.faults.proxy import Proxy
from tests.operator_fakes.cluster import FakeCluster
from tests.operator_fakes.served import ServedCluster
from tests.ports import free_port
from tests.recovery.hub import propose
from tests.recovery.own_cluster import OwnCluster
from tests.recovery.supervisor import POLL_SECONDS, Part, Supervisor
from tests.recovery.trial import PATIENCE_SECONDS, Trial


class RotatingCluster(OwnCluster):
    """Its people ask for another key once the guard has sent something; its kubelet mounts the whole Secret."""

    def __init__(self, root: Path, workdir: RunDirectory, silo: str) -> None:
        super().__init__(root, workdir, silo)
        self.ref = Ref(f"silo-{silo}", silo)
        self.before = ""
        self._mounted = root / "mounted"

    @override
    def join(self, hub: HubAddress) -> Part:
        part = super().join(hub)
        self._mounted.mkdir()
        self._served.ask(lambda held: held.put(_labelled_secret(self._secret(held))))
        return part

    @override
    def look(self, supervisor: Supervisor) -> None:
        super().look(supervisor)
        guard = supervisor.parts.get(f"{self.silo}-guard")
        if guard is None:
            return
        if not self.before and self._has_sent():
            guard.down = True
            supervisor.kill(guard.name)
            self.before = self._served.ask(self._rotate)
        elif guard.down and self.public_key() != self.before:
            self._mount()
            guard.down = False

    def public_key(self) -> str:
        """What the Silo publishes here."""
        return self._served.ask(lambda held: str(held.peek(SILO_KIND, self.ref)["status"]["publicKey"]))

    def clear(self, supervisor: Supervisor) -> None:
        """Wait until nothing of a job is there whose agent is gone at the hub, and forget its processes."""
        until = time.monotonic() + PATIENCE_SECONDS
        while self._served.ask(lambda held: held.objects(SILO_AGENT)):
            assert time.monotonic() < until, "the silo's agent does not go"
            supervisor.step()
            time.sleep(POLL_SECONDS)
        self._served.ask(lambda held: held.collect_garbage())

    def begin(self, workdir: RunDirectory) -> None:
        """What is made next runs in another run's volume, with the newest key."""
        self._workdir, self._volume = workdir, workdir.volume(self.silo)
        newest = self._served.ask(lambda held: self._secret(held)["data"]["key.pem"])
        self._volume.guard.mkdir(parents=True)
        (self._volume.guard / "key.pem").write_bytes(base64.b64decode(newest))

    @override
    def _part(self, role: str) -> Part:
        part = super()._part(role)
        if role == "guard":
            self._mount()
            part.arguments = [*part.arguments[:-1], str(self._mounted / "key.pem")]
        return part

    def _has_sent(self) -> bool:
        log = self._volume.audit / "log.jsonl"
        return log.exists() and '"acknowledged"' in log.read_text()

    def _rotate(self, held: FakeCluster) -> str:
        silo = held.peek(SILO_KIND, self.ref)
        key = str(status_of(silo)["publicKey"])
        silo["metadata"]["annotations"] = {ROTATE_KEY: VerifyKey.from_text(key).key_id}
        held.put(silo)
        return key

    def _mount(self) -> None:
        entries = self._served.ask(lambda held: self._secret(held)["data"])
        shutil.rmtree(self._mounted)
        self._mounted.mkdir()
        for name, text in entries.items():
            (self._mounted / name).write_bytes(base64.b64decode(text))

    def _secret(self, held: FakeCluster) -> Object:
        return held.peek(SECRET, Ref(self.ref.namespace, SIGNING_KEY))


@dataclass
class Rotation(Trial):
    """A trial whose silo replaces its key in the first of two jobs.

    :param job: the second.
    :ivar decisions: of that silo about each job, as they lay at the hub.
    :ivar hub_silo: the hub's Silo at the end.
    """

    job: JobManifest = field(kw_only=True)
    decisions: list[Any] = field(default_factory=list)
    hub_silo: Object = field(default_factory=dict)

    @property
    def next_run(self) -> RunDirectory:
        """Working directory of the second job."""
        return RunDirectory(self.directory / "next")

    @override
    def supervise(self, supervisor: Supervisor, proxy: Proxy, cluster: ServedCluster) -> str:
        """Supervise one job after the other."""
        trouble = super().supervise(supervisor, proxy, cluster)
        self._note(cluster)
        if trouble:
            return trouble
        self._begin_next(supervisor, proxy, cluster)
        trouble = super().supervise(supervisor, proxy, cluster)
        self._note(cluster)
        return trouble

    def _note(self, cluster: ServedCluster) -> None:
        place = self._place()
        agents = cluster.ask(lambda held: held.objects(SILO_AGENT))
        (mine,) = [agent for agent in agents if ref_of(agent).namespace == place.ref.namespace]
        self.decisions.append(status_of(mine).get("decision"))
        self.hub_silo = cluster.ask(lambda held: held.peek(SILO_KIND, place.ref))

    def _begin_next(self, supervisor: Supervisor, proxy: Proxy, cluster: ServedCluster) -> None:
        place, port = self._place(), free_port()
        cluster.ask(_without_agents)
        place.clear(supervisor)
        place.begin(self.next_run)
        for silo in SILOS:
            folder = self.next_run.volume(silo).guard
            if silo != place.silo:
                folder.mkdir(parents=True)
                shutil.copy(self.workdir.volume(silo).guard / "key.pem", folder)
        self.next_run.write_inputs(self.job, str(uuid.uuid4()), port)
        for name in [part.name for part in supervisor.parts.values() if not part.endless]:
            del supervisor.parts[name]
        address = self.site.address(proxy.port)
        cluster.ask(lambda held: propose(held, self.next_run, SILOS, port, address))
        for part in self.parts_of(self.next_run, port, proxy.port, self.site.ca):
            supervisor.parts[part.name] = part

    def _place(self) -> RotatingCluster:
        assert isinstance(self.place, RotatingCluster)
        return self.place


def public_key_of(workdir: RunDirectory, silo: str) -> str:
    """With which a silo began a run."""
    return SigningKey.load(workdir.volume(silo).guard / "key.pem").verify_key.to_text()


def _labelled_secret(secret: Object) -> Object:
    return {**secret, "metadata": {**secret["metadata"], "labels": {MANAGED_BY: MANAGER}}}


def _without_agents(held: FakeCluster) -> None:
    for agent in held.objects(SILO_AGENT):
        held.remove(SILO_AGENT, ref_of(agent))
