"""The guards of one job with secure aggregation: the real ones, in one process, with an aggregator of ours before them.

A guard's trainer is played here too: what it drops follows from the model that the task hands out, so that an attacker
who has made that model knows the answer.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from fedsilo.api.agent import SiloAgent
from fedsilo.api.digest import spec_digest
from fedsilo.api.job import FederatedJob
from fedsilo.api.loading import JobManifest, load_document
from fedsilo.api.silo import Silo
from fedsilo.methods import registry
from fedsilo.methods.interface import EVALUATE
from fedsilo.secure_aggregation.layout import Layout
from fedsilo.silo.volume import Volume
from fedsilo.transforms.plan import JobPlan
from fedsilo.transforms.secure_sum.steps import STEPS, layout_of
from fedsilo.wire import (
    BlobLink,
    Contract,
    SigningKey,
    Task,
    Tree,
    open_update,
    seal_task,
    write_blob,
    write_tensors,
)
from fedsilo_agent.guard.guarded_job import GuardedJob
from fedsilo_agent.guard.loop import Guard
from fedsilo_agent.guard.task_check import TaskCheck
from tests.integration.service.client import signature_of
from tests.integration.service.site import Site

CLASSES, FEATURE, INPUTS = 10, 32, 64

SECONDS = 60.0
"""Longest wait for one answer of a guard."""


def model_of(seed: int) -> Tree:
    """A model of 2,368 numbers."""
    rng = np.random.default_rng(seed)
    return {
        "encoder.weight": rng.normal(0, 1, (FEATURE, INPUTS)).astype(np.float32),
        "classifier.weight": rng.normal(0, 1, (CLASSES, FEATURE)).astype(np.float32),
    }


class Link:
    """The way between one guard and the aggregator: the verbs of the guard's client, in memory.

    :ivar sent: task -> content of the message or masked vector that arrived.
    :ivar refused: task -> why there is none.
    """

    def __init__(self) -> None:
        self.sent: dict[str, np.ndarray] = {}
        self.refused: dict[str, str] = {}
        self.blobs: dict[str, bytes] = {}
        self._name, self._sealed = "", b""
        self._news = asyncio.Event()

    def offer(self, name: str, sealed: bytes) -> None:
        """Make this the guard's next task."""
        self._name, self._sealed = name, sealed
        self._news.set()

    async def wait_answered(self, name: str) -> None:
        """Return when the guard has answered a task, or has said why not."""
        async with asyncio.timeout(SECONDS):
            while name not in self.sent and name not in self.refused:
                await asyncio.sleep(0.002)

    async def task(self, after: str, wait: float) -> bytes | None:
        """The guard's sealed task, as soon as there is one whose name is not `after`."""
        while self._name in ("", after):
            self._news.clear()
            await self._news.wait()
        return self._sealed

    async def download(self, link: BlobLink, path: Path) -> None:
        """A blob of a task."""
        path.write_bytes(self.blobs[link.digest])

    async def upload(self, task: str, path: Path, digest: str, *, new: bool = False) -> None:
        """A signed message or update of the guard's."""
        with open_update(path) as update:
            (entry,) = update.header.tensors
            self.sent[task] = update.tensor(entry.name).copy()

    async def report_failure(self, task: str, reason: str, message: str = "") -> None:
        """Why there is no answer."""
        self.refused[task] = f"{reason}: {message}"


class Guards:
    """The guards of a job's silos, and what each of them has.

    :param folder: that is empty.
    :param count: silos of the job.
    :param least: `spec.participation.minSilos`; None leaves the default, all silos.
    :ivar silos: references, in the job's order.
    """

    def __init__(self, folder: Path, count: int, least: int | None = None, rounds: int = 3) -> None:
        self.site = Site(folder, federation(count, least, rounds), port=1)
        self.spec = self.site.federation.job.spec
        self.method = registry.bind(self.spec)
        self.silos = list(self.site.silos)
        self.task_key = SigningKey.load(self.site.workdir.secrets / "task-key.pem")
        self.links = {silo: Link() for silo in self.silos}
        self.keys: dict[str, SigningKey] = {}
        self._blobs = folder / "handed-out"
        self._blobs.mkdir()
        self._running: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Guards:
        for silo in self.silos:
            self._running.append(asyncio.create_task(self._guard(silo).run()))
        return self

    async def __aexit__(self, *_: object) -> None:
        for running in self._running:
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running

    def contract(self, step: str) -> Contract:
        """What may come back for a task of this step."""
        return JobPlan(self.method).contract(step, signature_of(model_of(0)), {})

    def layout(self, step: str) -> Layout:
        """The vector in which updates of this step are summed."""
        summed = self.contract(step).summed
        assert summed is not None
        return layout_of(self.method, summed)

    def answer(self, silo: str, step: str, model: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """What the trainer of a silo makes of a model: a function of both, which stands for training on its data."""
        content = b"".join(np.round(array, 4).tobytes() for array in model.values())
        seed = hashlib.sha256(silo.encode() + step.encode() + content).digest()
        rng = np.random.default_rng(int.from_bytes(seed[:8], "big"))
        samples = 100 + 17 * self.silos.index(silo)
        if step == EVALUATE:
            rows = {f"confusion/{label}": rng.integers(5, 30, CLASSES) for label in range(CLASSES)}
            counts = {name: int(row.sum()) for name, row in rows.items()}
            total = sum(counts.values())
            correct = sum(int(rows[f"confusion/{label}"][label]) for label in range(CLASSES))
            metrics = {"accuracy": correct / total, "loss": float(rng.uniform(0.5, 1.5))}
            return {"tensors": rows, "samples": total, "metrics": metrics, "support": counts}
        change = {name: 0.05 * rng.normal(0, 1, array.shape) for name, array in model.items()}
        tensors = {name: (array + change[name]).astype(np.float32) for name, array in model.items()}
        metrics = {"loss": float(rng.uniform(0.5, 1.5))}
        return {"tensors": tensors, "samples": samples, "metrics": metrics, "support": {}}

    def vector(self, silo: str, step: str, model: Mapping[str, np.ndarray]) -> np.ndarray:
        """The silo's summand in a sum, (n,) uint64: what nobody else may learn."""
        told = self.answer(silo, step, model)
        tensors = told["tensors"]
        layout, samples, metrics = self.layout(step), told["samples"], told["metrics"]
        return layout.encode(samples, metrics, tensors, tensors.__getitem__, model)

    async def ask(
        self,
        silo: str,
        name: str,
        round: int,
        phase: str,
        step: str,
        trees: Mapping[str, Mapping[str, np.ndarray]],
        settings: Mapping[str, Any] | None = None,
    ) -> np.ndarray | None:
        """The guard's answer to a task; None where it refuses."""
        link = self.links[silo]
        blobs = tuple(self._blob(link, tree, content) for tree, content in trees.items())
        task = Task(
            job=self.site.uid,
            silo=silo,
            task=name,
            round=round,
            phase=phase,
            step=step,
            spec_digest=bytes.fromhex(spec_digest(self.spec)),
            contract=bytes.fromhex(self.contract(step).digest()),
            blobs=blobs,
            settings=dict(settings or {}),
        )
        if step not in STEPS:
            self._drop(silo, name, self.answer(silo, step, trees["model"]))
        link.offer(name, seal_task(task, self.task_key))
        await link.wait_answered(name)
        return link.sent.get(name)

    async def ask_all(self, ask: Callable[[str], Awaitable[np.ndarray | None]]) -> dict[str, np.ndarray]:
        """The answers of the silos that give one."""
        found = await asyncio.gather(*map(ask, self.silos))
        return {silo: answer for silo, answer in zip(self.silos, found, strict=True) if answer is not None}

    def refusals(self) -> set[str]:
        """What guards have on record of what they did not answer; of that, a reason leaves and no text."""
        logs = [self._volume(silo).audit / "log.jsonl" for silo in self.silos]
        lines = [json.loads(line) for log in logs if log.exists() for line in log.read_text().splitlines()]
        return {line["detail"] for line in lines if line["event"] in ("refused", "failed")}

    def _blob(self, link: Link, name: str, tree: Mapping[str, np.ndarray]) -> BlobLink:
        ref = write_blob(tree, self._blobs)
        link.blobs[ref.digest] = (self._blobs / ref.digest).read_bytes()
        return BlobLink(name, ref.digest, ref.length)

    def _drop(self, silo: str, task: str, told: Mapping[str, Any]) -> None:
        directory = self._volume(silo).drop / task
        if directory.exists():
            return
        directory.mkdir()
        write_tensors(told["tensors"], directory / "tensors")
        reply = {field: told[field] for field in ("samples", "metrics", "support")}
        (directory / "reply.json").write_text(json.dumps(reply))

    def _guard(self, silo: str) -> Guard:
        name = silo.rpartition("/")[2]
        folder, volume = self.site.workdir.silo(name), self._volume(silo)
        volume.prepare()
        document = {"signature": signature_of(model_of(0)).to_dict(), "isolation": "none"}
        (volume.drop / "signature.json").write_text(json.dumps(document))
        agent, own = (
            load_document(folder / "agent.json", SiloAgent),
            load_document(folder / "silo.json", Silo),
        )
        self.keys[silo] = SigningKey.load(volume.guard / "key.pem")
        client: Any = self.links[silo]
        return Guard(GuardedJob(TaskCheck(agent, own), volume, self.keys[silo], client))

    def _volume(self, silo: str) -> Volume:
        return self.site.workdir.volume(silo.rpartition("/")[2])


def federation(count: int, least: int | None, rounds: int) -> JobManifest:
    """A job with secure aggregation over so many silos, which score the model by a confusion matrix."""
    names = [f"s{place}" for place in range(count)]
    job = {
        "metadata": {"name": "summed", "namespace": "federation"},
        "spec": {
            "method": {"name": "fedavg"},
            "model": {"name": "mlp", "config": {"hidden": [FEATURE]}},
            "data": {
                "dataset": "digits",
                "classes": CLASSES,
                "inputShape": [INPUTS],
                "validationFraction": 0.2,
            },
            "training": {"rounds": rounds},
            "silos": {"refs": [{"namespace": f"silo-{name}", "name": name} for name in names]},
            "participation": {"minSilos": least},
            "aggregation": {"secure": True},
            "evaluation": {"metrics": ["confusion_matrix"]},
        },
    }
    silos = [
        {
            "metadata": {"name": name, "namespace": f"silo-{name}"},
            "spec": {
                "datasets": [{"name": "digits", "loader": "sklearn:digits"}],
                "policy": {"payloadKinds": ["model", "confusion"]},
            },
        }
        for name in names
    ]
    return JobManifest(
        "attack", FederatedJob.model_validate(job), tuple(Silo.model_validate(silo) for silo in silos)
    )
