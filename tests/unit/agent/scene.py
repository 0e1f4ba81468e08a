"""A guard over a volume on disk, an aggregator in memory, and what an honest trainer has dropped."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedsilo.api.agent import SiloAgent
from fedsilo.api.conditions import GuardState
from fedsilo.api.job import FederatedJobSpec
from fedsilo.api.loading import load_document
from fedsilo.api.silo import Silo
from fedsilo.errors import Problem
from fedsilo.local.outcome import clear_outcome, is_dismissed
from fedsilo.silo.volume import Volume
from fedsilo.wire import FINISH, BlobLink, SigningKey, Task, Tree, seal_task, write_blob, write_tensors
from fedsilo_agent.guard.guarded_job import GuardedJob
from fedsilo_agent.guard.loop import Guard
from fedsilo_agent.guard.task_check import TaskCheck
from tests.integration.service.client import contract_of, said_of, signature_of
from tests.integration.service.scripted import TREE
from tests.integration.service.site import Site, federation
from tests.updates import digest_of

TASK = "r00001-train-north"


class Aggregator:
    """The guard's client in memory.

    :ivar uploads: the updates that arrived, by task.
    :ivar ended: whether the job is over, whatever was answered.
    :ivar refusals: what the next uploads are refused with.
    """

    def __init__(self, key: SigningKey, blob: bytes) -> None:
        self.key = key
        self.blob = blob
        self.tasks: list[Task] = []
        self.uploads: dict[str, list[bytes]] = {}
        self.refusals: list[Problem] = []
        self.failures: dict[str, tuple[str, str]] = {}
        self.states: list[GuardState | None] = []
        self.fetched = 0
        self.ended = False
        self.repeats = 0

    async def task(self, after: str, wait: float) -> bytes | None:
        names = [task.task for task in self.tasks]
        if after == FINISH:
            return None
        position = names.index(after) + 1 if after in names else 0
        while after not in names and position < len(names) - 1 and self.is_settled(names[position]):
            position += 1  # a guard that was started again is not asked for what is here
        if self.repeats > 0 and position > 0:
            self.repeats -= 1
            return seal_task(self.tasks[position - 1], self.key)
        while position > 0 and not self.is_settled(names[position - 1]):
            await asyncio.sleep(0.001)
        return seal_task(self.tasks[position], self.key)

    def is_settled(self, task: str) -> bool:
        return self.ended or task in self.uploads or task in self.failures

    async def download(self, link: BlobLink, path: Path) -> None:
        self.fetched += 1
        arrived = path.with_suffix(".part")
        arrived.write_bytes(self.blob)
        arrived.replace(path)

    async def upload(self, task: str, path: Path, digest: str, *, new: bool) -> None:
        content = path.read_bytes()
        assert digest_of(content) == digest
        if self.refusals:
            raise self.refusals.pop(0)
        self.uploads.setdefault(task, []).append(content)

    async def report_failure(self, task: str, reason: str, message: str) -> None:
        self.failures[task] = (reason, message)

    async def tell_state(self, state: GuardState | None) -> None:
        self.states.append(state)


class Scene:
    """A silo's volume, its guard and the aggregator; the trainer has dropped an honest reply already."""

    def __init__(
        self, root: Path, data: Any = None, policy: Any = None, tree: Tree = TREE, **sections: Any
    ) -> None:
        self.tree = tree
        site = Site(root, federation(rounds=3, data=data, policy=policy, **sections), port=1)
        directory = site.workdir.silo("north")
        agent = load_document(directory / "agent.json", SiloAgent)
        self.check = TaskCheck(agent, load_document(directory / "silo.json", Silo))
        self.volume: Volume = site.workdir.volume("north")
        self.volume.prepare()
        self.key = SigningKey.load(self.volume.guard / "key.pem")
        ref = write_blob(tree, site.workdir.aggregator)
        content = (site.workdir.aggregator / ref.digest).read_bytes()
        self.aggregator = Aggregator(SigningKey.load(site.workdir.secrets / "task-key.pem"), content)
        self.blob = self.volume.blobs / ref.digest
        self.contract = contract_of(site, "train", tree)
        self.honest: dict[str, Any] = {
            "job": site.uid,
            "silo": site.silos[0],
            "task": TASK,
            "round": 1,
            "phase": "train",
            "step": "train",
            "spec_digest": bytes.fromhex(site.spec_digest),
            "contract": bytes.fromhex(self.contract.digest()),
            "blobs": (BlobLink("model", ref.digest, ref.length),),
        }
        self.announce()
        self.drop(TASK)

    def check_of(self, spec: FederatedJobSpec) -> TaskCheck:
        """The check where the institution has approved a job with another specification."""
        agent = self.check.agent
        job = agent.spec.job.model_copy(update={"spec": spec})
        frozen = agent.spec.model_copy(update={"job": job})
        return replace(self.check, agent=agent.model_copy(update={"spec": frozen}))

    def announce(self) -> None:
        """What a trainer does first, whenever it starts."""
        document = {"signature": signature_of(self.tree).to_dict(), "isolation": "none"}
        (self.volume.drop / "signature.json").write_text(json.dumps(document))

    def drop(self, task: str, tree: Tree | None = None, **reply: Any) -> None:
        directory = self.volume.drop / task
        directory.mkdir(exist_ok=True)
        write_tensors(self.tree if tree is None else tree, directory / "tensors")
        said = said_of(self.check.agent.spec.job.spec)
        document = {"metrics": {}, "support": {}} | said | reply
        (directory / "reply.json").write_text(json.dumps(document))

    @property
    def update(self) -> Path:
        return self.volume.outbox / f"{TASK}.update"

    async def run(self) -> None:
        """Start a guard and let it answer the task, to the end of the job; one that had ended goes on, as resumed."""
        if is_dismissed(self.volume):
            clear_outcome(self.volume)
            self.announce()
        self.aggregator.tasks = self.tasks()
        client: Any = self.aggregator
        async with asyncio.timeout(60):
            await Guard(GuardedJob(self.check, self.volume, self.key, client)).run()

    def tasks(self) -> list[Task]:
        """The one task, and the end of the job."""
        finish = {"task": FINISH, "step": FINISH, "blobs": (), "settings": {"succeeded": True}}
        return [Task(**self.honest), Task(**(self.honest | finish))]

    def events(self) -> list[str]:
        lines = (self.volume.audit / "log.jsonl").read_text().splitlines()
        return [json.loads(line)["event"] for line in lines]


def guard_of(scene: Scene) -> Guard:
    client: Any = scene.aggregator
    return Guard(GuardedJob(scene.check, scene.volume, scene.key, client))
