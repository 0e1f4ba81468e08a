"""An institution whose hub belongs to the attacker: gateway, its key and every object of the API are the test's.

The institution is real up to the moment at which it would start a process, and the gateway is real as well.
"""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Never

import yaml
from typing_extensions import override

from fedsilo.api.agent import Proposal, agent_name
from fedsilo.api.digest import spec_digest
from fedsilo.api.job import FederatedJobSpec
from fedsilo.api.observed import Object, status_of, uid_of
from fedsilo.api.silo_status import HubAddress
from fedsilo.errors import FedsiloError
from fedsilo.hub.client import AgentList, HubAgent, HubClient, hub_client
from fedsilo.hub.mirror import Mirror
from fedsilo.hub.reports import reported_status
from fedsilo.institution.agent_run import AgentRun, read_record
from fedsilo.institution.deciding import decide, entry_of
from fedsilo.institution.directory import SiloDirectory, SiloIdentity
from fedsilo.institution.executor import Executor
from fedsilo.institution.silo_file import WatchedSilo
from fedsilo_operator.objects import SILO_AGENT, ref_of
from tests.integration.gateway.running_hub import NORTH, RunningHub
from tests.unit.operator.silo.harness import agent as an_agent
from tests.unit.operator.silo.harness import job_spec

SECRET_PATH = "a-path-of-the-institution"


class Watching(Executor):
    """Notes what would start, in place of starting it."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.begun = 0

    @override
    def _fork_server(self) -> Never:
        self.begun += 1
        raise FedsiloError("a process would start")


class AttackScene:
    """Both sides of an attack by the hub: the attacker's hub, and the institution that follows it.

    :ivar mirror: what the institution has heard.
    :ivar uids: identities of the agents by the names that a test gives them.
    """

    def __init__(self, running_hub: RunningHub, hub: HubClient, directory: SiloDirectory) -> None:
        self.running_hub, self.hub, self.directory = running_hub, hub, directory
        self.mirror = Mirror(str(NORTH))
        self.uids: dict[str, str] = {}
        key = running_hub.keys[NORTH]
        self._watched = WatchedSilo(directory, directory.require_membership(), key.verify_key.to_text())
        self.executor = Watching(directory, self._watched, key)

    def spec(self, trust: Object | None = None, job: Object | None = None, **changes: Any) -> Object:
        """The spec of a SiloAgent, as consistent as the honest one.

        :param trust: changes of the trust bundle; `job`: of the frozen job; others: of the job's specification.
        """
        made: Object = copy.deepcopy(an_agent(job_spec(**changes))["spec"])
        made["trust"] |= {
            "url": self.hub_url,
            "address": None,
            "publicKey": self.running_hub.keys[NORTH].verify_key.to_text(),
        } | (trust or {})
        made["trust"] = {name: value for name, value in made["trust"].items() if value is not None}
        made["job"] |= job or {}
        typed = FederatedJobSpec.model_validate(made["job"]["spec"])
        if "specDigest" not in (job or {}):
            made["job"]["specDigest"] = spec_digest(typed)
        return made

    @property
    def hub_url(self) -> str:
        """URL of the hub in the invitation that the institution joined by."""
        return str(self.directory.require_membership().hub.url)

    def put(self, spec: Object, called: str = "honest") -> Object:
        """Write a SiloAgent at the hub.

        :param called: what the test calls it.
        """
        job = spec["job"]
        own = agent_name(job["name"], job["uid"], NORTH.namespace, NORTH.name)
        metadata = {"name": own, "namespace": NORTH.namespace}
        obj = {"apiVersion": SILO_AGENT.api, "kind": SILO_AGENT.name, "metadata": metadata, "spec": spec}
        made = self.running_hub.cluster.put(obj)
        self.uids[called] = uid_of(made)
        return made

    def withdraw(self, agent: Object) -> None:
        self.running_hub.cluster.remove(SILO_AGENT, ref_of(agent))

    async def listen(self, *wanted: Object) -> None:
        """Follow the hub until it says that these are the agents, and do what follows."""
        specs = {ref_of(agent).name: agent["spec"] for agent in wanted}
        while {agent.name: agent.spec for agent in (await self._poll()).agents} != specs:
            continue
        self.hear(self.mirror)

    def hear(self, mirror: Mirror) -> None:
        """What `fedsilo silo serve` does about what it has heard."""
        self.executor.follow(mirror)
        self.executor.step()

    async def _poll(self) -> AgentList:
        told = await self.hub.agents(self.mirror.revision, 0.2)
        if told is not None:
            self.mirror = self.mirror.hear(told)
        assert self.mirror.told is not None
        return self.mirror.told

    def part(self, called: str = "honest") -> AgentRun:
        """A part as the institution has it, at work or on file."""
        uid = self.uids.get(called, called)
        record = read_record(self.directory, uid)
        assert record is not None
        return self.executor.parts.get(uid) or AgentRun(self.directory, record)

    def log(self, called: str = "honest") -> Path:
        """The audit log of a part."""
        return self.directory.volume(self.uids[called]).audit / "log.jsonl"

    def status(self, called: str = "honest") -> Object:
        """What the institution says of a part."""
        return dict(status_of(self.part(called).record))

    def phase(self, called: str = "honest") -> str:
        return str(self.status(called)["phase"])

    def reason(self, called: str = "honest") -> str:
        """Why a part is not admitted."""
        (found,) = (item for item in self.status(called)["conditions"] if item["type"] == "Admitted")
        return str(found["reason"])

    def approve(self, called: str = "honest") -> None:
        """A person of the institution approves what is shown."""
        decide(
            self.directory, entry_of(Proposal.model_validate(self.status(called)["proposal"]), "Approved", "")
        )
        self.executor.step()

    async def report(self) -> None:
        """Tell the hub everything that there is to tell."""
        for uid, (name, status) in self.executor.statuses().items():
            await self.hub.report(name, uid, reported_status(status))


@asynccontextmanager
async def attacked_institution(root: Path, policy: Object) -> AsyncIterator[AttackScene]:
    """An institution with this policy, which has joined and was accepted."""
    directory = SiloDirectory(root / "institution")
    directory.root.mkdir()
    directory.prepare()
    async with RunningHub(root / "hub").running() as running_hub:
        await running_hub.join()
        directory.key_file.write_bytes(running_hub.keys[NORTH].to_pem())
        directory.key_file.chmod(0o600)
        write_silo(directory, policy)
        address = HubAddress(
            url=f"https://127.0.0.1:{running_hub.gateway.port}",
            ca_certificate=running_hub.authority_pem,
            key=running_hub.identity.key.verify_key.to_text(),
        )
        public = running_hub.keys[NORTH].verify_key.to_text()
        directory.write_membership(SiloIdentity(str(NORTH), address, "0" * 64, public))
        async with hub_client(address, str(NORTH), running_hub.keys[NORTH], {}) as hub:
            yield AttackScene(running_hub, hub, directory)


def write_silo(directory: SiloDirectory, policy: Object, config: Object | None = None) -> None:
    """`silo.yaml` of the institution."""
    config = {"path": f"{SECRET_PATH}.npz"} if config is None else config
    dataset = {"name": "scans", "loader": "npz", "config": config}
    silo = {
        "apiVersion": "fedsilo.io/v1alpha1",
        "kind": "Silo",
        "metadata": {"namespace": NORTH.namespace, "name": NORTH.name},
        "spec": {"datasets": [dataset], "policy": policy},
    }
    directory.silo_file.write_text(yaml.safe_dump(silo))


def signed_list(version: int, *agents: HubAgent) -> AgentList:
    """A list that the hub signs, whatever the API server has."""
    return AgentList(version, str(version), agents)
