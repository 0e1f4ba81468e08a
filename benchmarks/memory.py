"""Memory of the aggregator: how far its peak lies above the idle process, in sizes of the model.

    python -m benchmarks.memory

The aggregator is the real process, with real HTTPS; the silos are light clients of one process, which download the
model, sign an update of every tensor and upload it. Idle is the aggregator's resident memory (VmRSS) when it serves
and nobody has asked anything yet: Python, torch, the test set, and whatever the start-up has left. Peak is VmHWM,
reset at that moment, over all rounds to the finished model: what the process allocates, and pages of mapped files
while they are resident. `anonymous` is the peak of what it allocates alone (RssAnon, sampled). Both are given above
idle and in sizes of the model. The target is at most 2.5 sizes, for 4 silos and for 16.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from fedsilo.api.job import FederatedJobSpec
from fedsilo.methods import registry
from fedsilo.transforms.plan import JobPlan
from fedsilo.wire import (
    FINISH,
    ModelSignature,
    SigningKey,
    Task,
    UpdateHeader,
    VerifyKey,
    issue_server,
    lay_out,
    make_authority,
    new_update,
    open_blob,
    open_task,
    signed_part,
    task_digest,
    update_digest,
)
from fedsilo_agent.guard.client import AggregatorAddress, AggregatorClient

ROOT = Path(__file__).resolve().parents[1]
MODULE = "benchmarks.memory"
JOB = "memory"
CLASSES = 10
WIDTHS = (1000, 12500, 500, 10000, 100)
"""About 25 million weights, 100 MB; half of them in the first layer."""

MB = 1e6
SAMPLE = 0.01


def network(input_shape: tuple[int, ...], classes: int) -> SimpleNamespace:
    """The job's model, a chain of linear layers. The aggregator imports this module, and torch with it."""
    from torch import nn

    del input_shape
    layers = [nn.Linear(here, there) for here, there in pairwise(WIDTHS)]
    return SimpleNamespace(encoder=nn.Sequential(*layers), classifier=nn.Linear(WIDTHS[-1], classes))


def examples() -> tuple[np.ndarray, np.ndarray]:
    """A test set of a few samples."""
    return np.ones((8, WIDTHS[0]), np.float32), np.arange(8) % CLASSES


@dataclass
class Aggregator:
    """The process that is measured, and what was seen of it, in bytes."""

    process: subprocess.Popen[bytes]
    url: str
    ca: str
    task_key: VerifyKey
    idle: dict[str, int] = field(default_factory=dict)
    peak: dict[str, int] = field(default_factory=dict)

    def begin(self) -> None:
        """Call when the process is idle: its peaks are measured from here to its end."""
        self.idle = self._status()
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")  # resets VmHWM (proc(5))
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while self.process.poll() is None:
            for name, size in self._status().items():
                self.peak[name] = max(size, self.peak.get(name, 0))
            time.sleep(SAMPLE)

    def _status(self) -> dict[str, int]:
        fields = {}
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            name, _, value = line.partition(":")
            if name in ("VmRSS", "VmHWM", "RssAnon", "RssFile"):
                fields[name] = int(value.split()[0]) * 1024
        return fields


@dataclass(frozen=True)
class Silo:
    """One light client of the aggregator."""

    name: str
    key: SigningKey
    directory: Path

    @property
    def reference(self) -> str:
        """Reference of the silo as `namespace/name`."""
        return f"silos/{self.name}"


def job(silos: int, rounds: int, scored: bool) -> dict[str, Any]:
    """The manifest of the job."""
    test = [{"name": "test", "loader": f"python:{MODULE}:examples"}] if scored else []
    return {
        "apiVersion": "fedsilo.io/v1alpha1",
        "kind": "FederatedJob",
        "metadata": {"name": JOB, "namespace": "federation", "uid": JOB},
        "spec": {
            "method": {"name": "fedavg"},
            "model": {"name": f"python:{MODULE}:network"},
            "data": {"dataset": "data", "classes": CLASSES, "inputShape": [WIDTHS[0]]},
            "training": {"rounds": rounds, "device": "cpu"},
            "silos": {"refs": [{"namespace": "silos", "name": f"s{n}"} for n in range(silos)]},
            "aggregator": {"datasets": test},
            "evaluation": {"testDataset": "test"} if scored else {},
        },
    }


@contextmanager
def aggregator(directory: Path, manifest: dict[str, Any], silos: list[Silo]) -> Iterator[Aggregator]:
    """Start the aggregator, and leave no process behind."""
    authority, task_key = make_authority(), SigningKey.generate()
    certificate, key = issue_server(authority, ["127.0.0.1"])
    (directory / "server.crt").write_bytes(certificate)
    (directory / "server.key").write_bytes(key)
    task_key.save(directory / "task-key.pem")
    keys = [
        {"namespace": "silos", "name": silo.name, "publicKey": silo.key.verify_key.to_text()}
        for silo in silos
    ]
    (directory / "config.json").write_text(json.dumps({"job": manifest, "silos": keys}))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "fedsilo_aggregator", "--host", "127.0.0.1", "--port", str(port)]
    command += ["--config", str(directory / "config.json"), "--dir", str(directory / "job")]
    command += ["--task-key", str(directory / "task-key.pem"), "--exit-with-parent"]
    command += ["--tls-cert", str(directory / "server.crt"), "--tls-key", str(directory / "server.key")]
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stderr=log)
    try:
        wait_until_serving(process, port, directory / "log")
        yield Aggregator(
            process, f"https://127.0.0.1:{port}", authority.cert_pem.decode(), task_key.verify_key
        )
        process.wait(60)
    finally:
        process.kill()
        process.wait()


def wait_until_serving(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    """Return when the port answers."""
    while process.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise SystemExit(f"the aggregator ended with exit code {process.returncode}:\n{log.read_text()}")


async def take_part(silo: Silo, served: Aggregator, turn: asyncio.Semaphore) -> None:
    """Answer tasks to the last."""
    peer = AggregatorAddress(served.url, served.ca, JOB, silo.reference, silo.key)
    async with AggregatorClient(peer) as client:
        after = ""
        while True:
            sealed = await client.task(after, wait=25)
            if sealed is None:
                continue
            task = open_task(sealed, served.task_key)
            if task.step == FINISH:
                await client.task(FINISH, wait=0)
                return
            after = task.task
            async with turn:
                await answer(client, silo, task, task_digest(sealed))


async def answer(client: AggregatorClient, silo: Silo, task: Task, digest: bytes) -> None:
    """Download the model, and send each of its tensors back, changed."""
    (link,) = task.blobs
    blob, update = silo.directory / "model", silo.directory / "update"
    await client.download(link, blob)
    await asyncio.to_thread(write_answer, silo, task, digest, blob, update)
    await client.upload(task.task, update, update_digest(signed_part(update)))
    blob.unlink()
    update.unlink()


def write_answer(silo: Silo, task: Task, digest: bytes, blob: Path, update: Path) -> None:
    """Sign an update as the contract wants it, from the model's own tensors."""
    method = registry.bind(FederatedJobSpec.model_validate(job(silos=1, rounds=1, scored=False)["spec"]))
    factor = np.float32(1 + int(silo.name[1:]) / 100)
    with open_blob(blob) as tensors:
        signature = ModelSignature(tuple(tensors.specs.values()), CLASSES, WIDTHS[-1])
        contract = JobPlan(method).contract(task.step, signature, {})
        header = UpdateHeader(
            job=JOB,
            task=task.task,
            round=task.round,
            sender=silo.reference,
            key_id=silo.key.verify_key.key_id,
            contract=bytes.fromhex(contract.digest()),
            task_digest=digest,
            samples=100,
            metrics={"loss": 1.0},
            blocks=lay_out((block.kind, tensors.specs[block.name]) for block in contract.blocks),
        )
        with new_update(update, header, contract, silo.key) as own:
            for block in contract.blocks:
                own.write(block.name, memoryview((tensors.tensor(block.name) * factor).tobytes()))
            own.publish()


def measure(silos: int, rounds: int, scored: bool, at_once: int) -> list[str]:
    """Run one job and return its row of the table."""
    with tempfile.TemporaryDirectory(prefix="fedsilo-memory-") as name:
        clients = []
        for number in range(silos):
            directory = Path(name) / f"s{number}"
            directory.mkdir()
            clients.append(Silo(f"s{number}", SigningKey.generate(), directory))
        began = time.monotonic()
        with aggregator(Path(name), job(silos, rounds, scored), clients) as served:
            served.begin()
            size = next((Path(name) / "job" / "blobs").iterdir()).stat().st_size

            async def all_take_part() -> None:
                turn = asyncio.Semaphore(at_once)
                await asyncio.gather(*(take_part(silo, served, turn) for silo in clients))

            asyncio.run(all_take_part())
        if served.process.returncode != 0:
            raise SystemExit(f"the job failed:\n{(Path(name) / 'log').read_text()}")
        seconds = time.monotonic() - began
    above = served.peak["VmHWM"] - served.idle["VmRSS"]
    anonymous = served.peak["RssAnon"] - served.idle["RssAnon"]
    evaluation = "global" if scored else "by silos"
    megabytes = [f"{n / MB:.0f}" for n in (size, served.idle["VmRSS"], served.peak["VmHWM"])]
    ratios = [f"{above / size:.2f}", f"{anonymous / size:.2f}"]
    return [str(silos), str(at_once), evaluation, *megabytes, *ratios, f"{seconds:.0f}"]


def main() -> None:
    """Measure each number of silos and print the table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.memory", description="Memory of the aggregator."
    )
    parser.add_argument("--silos", type=int, nargs="+", default=[4, 16], help="numbers of silos")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--at-once", type=int, default=4, help="silos that transfer at the same time")
    parser.add_argument("--evaluation", choices=["global", "silos"], nargs="+", default=["global", "silos"])
    args = parser.parse_args()
    head = [
        "silos",
        "at once",
        "evaluation",
        "model MB",
        "idle MB",
        "peak MB",
        "ratio",
        "anonymous",
        "seconds",
    ]
    print("  ".join(head), flush=True)
    for silos in args.silos:
        for evaluation in args.evaluation:
            row = measure(silos, args.rounds, evaluation == "global", min(args.at_once, silos))
            print("  ".join(cell.rjust(len(name)) for cell, name in zip(row, head, strict=True)), flush=True)


if __name__ == "__main__":
    main()
