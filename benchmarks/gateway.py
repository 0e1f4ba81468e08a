"""The gateway: how much of the direct way's rate a silo has through it, its memory, and how soon it tells silos news.

    python -m benchmarks.gateway

A silo downloads a model of 100 MB and uploads an update of 100 MB, directly from the aggregator and through the
gateway, by turns; all three are real processes, over real HTTPS, and share the machine's cores. A pair is a direct
transfer and the one through the gateway right after or before it; `ratio` is the median of the pairs' quotients of
rates. `cpu` is what a transfer through the gateway costs each of the three, user and system, beside what the direct
one costs.

Then 200 silos wait for news with long polls while 20 of them download and upload 100 MB at once, first in bodies of
1 MB, then of 100 MB: the gateway's peak memory (VmHWM) above that when it serves and nobody has asked, and the time
from a SiloAgent's change to the answer of the poll that waits for it. Each line of the output is a JSON object.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import math
import multiprocessing
import os
import resource
import ssl
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import aiohttp

from benchmarks.memory import JOB, MB, Aggregator, Silo, aggregator, job, write_answer
from fedsilo.api.observed import Object
from fedsilo.event_loop import run_event_loop
from fedsilo.wire import BlobLink, SigningKey, Task, open_task, sign_request, task_digest
from fedsilo_agent.guard.client import AggregatorClient, Peer
from tests.integration.gateway.process import GatewayProcess, accepted_silo, gateway, silo_agent

POLLS, AT_ONCE = 200, 20
SMALL_BYTES, LARGE_BYTES = 1_000_000, 100_000_000
CHANGE_SECONDS = 0.05
"""Time between two changes of SiloAgents."""

SETTLE_SECONDS = 2.0
"""Time until all polls wait."""

TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Figure:
    """One transfer.

    :param cpu: seconds of aggregator, silo and gateway.
    """

    seconds: float
    cpu: tuple[float, float, float]


@dataclass
class Scene:
    """What is running.

    :ivar answers: task and digest of the sealed task, by silo.
    """

    folder: Path
    silos: list[Silo]
    aggregator: Aggregator
    gateway: GatewayProcess
    tasks: dict[str, tuple[Task, bytes]] = field(default_factory=dict)

    def peer(self, silo: Silo, through: bool) -> Peer:
        """The aggregator as this silo reaches it, directly or through the gateway."""
        url, ca = (
            (self.gateway.url, self.gateway.ca) if through else (self.aggregator.url, self.aggregator.ca)
        )
        return Peer(url, ca, JOB, silo.reference, silo.key)

    async def task(self, silo: Silo, client: AggregatorClient) -> tuple[Task, bytes]:
        """The silo's task, which stays the same."""
        if silo.name not in self.tasks:
            sealed = await client.task("", wait=25)
            assert sealed is not None
            self.tasks[silo.name] = open_task(sealed, self.aggregator.task_key), task_digest(sealed)
        return self.tasks[silo.name]

    async def measure(self, transfer: Awaitable[None]) -> Figure:
        """How long a transfer takes, and what it costs each process."""
        before, began = self._processor(), time.monotonic()
        await transfer
        seconds = time.monotonic() - began
        aggregated, own, passed = (
            after - earlier for after, earlier in zip(self._processor(), before, strict=True)
        )
        return Figure(seconds, (aggregated, own, passed))

    def _processor(self) -> tuple[float, float, float]:
        own = resource.getrusage(resource.RUSAGE_SELF)
        return (
            _processor(self.aggregator.process.pid),
            own.ru_utime + own.ru_stime,
            _processor(self.gateway.process.pid),
        )


def _processor(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


@contextmanager
def scene(transferring: int, polling: int) -> Iterator[Scene]:
    """An aggregator, and a gateway that knows so many silos of which the first ones have a part in its job."""
    with tempfile.TemporaryDirectory(prefix="fedsilo-gateway-") as name:
        silos = []
        for number in range(max(transferring, polling)):
            (Path(name) / f"s{number}").mkdir()
            silos.append(Silo(f"s{number}", SigningKey.generate(), Path(name) / f"s{number}"))
        manifest = job(transferring, rounds=1, scored=False)
        with aggregator(Path(name), manifest, silos[:transferring]) as served:
            objects = [accepted_silo(silo.reference, silo.key) for silo in silos]
            objects += [agent(silo, served) for silo in silos]
            limits = {"open_requests": 8, "requests_per_second": 1000, "burst": 1000}
            with gateway(Path(name) / "gateway", objects, limits) as running:
                yield Scene(Path(name), silos, served, running)
            served.process.kill()


def agent(silo: Silo, served: Aggregator, *, suspend: bool = False) -> Object:
    """The part that a silo has in the job."""
    return silo_agent(silo.reference, silo.key, JOB, served.url, served.ca, suspend=suspend)


async def throughput(pairs: int) -> dict[str, Any]:
    """Rates of both ways, by direction."""
    figures: dict[tuple[str, bool], list[Figure]] = {
        (direction, through): [] for direction in ("download", "upload") for through in (False, True)
    }
    size = 0
    with scene(2 * pairs, 0) as there:
        for number, silo in enumerate(there.silos):
            pair, second = divmod(number, 2)
            through = bool(second) != bool(pair % 2)  # which is first changes from pair to pair
            async with AggregatorClient(there.peer(silo, through)) as client:
                task, digest = await there.task(silo, client)
                blob, update = silo.directory / "model", silo.directory / "update"
                figures["download", through].append(await there.measure(client.download(task.blobs[0], blob)))
                await asyncio.to_thread(write_answer, silo, task, digest, blob, update)
                name = hashlib.sha256(update.read_bytes()).hexdigest()
                figures["upload", through].append(await there.measure(client.upload(task.task, update, name)))
                size = update.stat().st_size
                blob.unlink()
                update.unlink()
    return {
        direction: _compared(size, figures[direction, False], figures[direction, True])
        for direction in ("download", "upload")
    }


def _compared(size: int, direct: list[Figure], through: list[Figure]) -> dict[str, Any]:
    ratios = [one.seconds / other.seconds for one, other in zip(direct, through, strict=True)]
    found: dict[str, Any] = {"pairs": len(ratios), "ratio": statistics.median(ratios)}
    found["ratios"] = [round(ratio, 2) for ratio in ratios]
    for way, figures in (("direct", direct), ("gateway", through)):
        found[f"{way} MB/s"] = size / MB / statistics.median(figure.seconds for figure in figures)
        costs = zip(*(figure.cpu for figure in figures), strict=True)
        names = ("aggregator", "silo", "gateway")
        found[f"{way} cpu"] = {
            name: round(statistics.median(cost), 3) for name, cost in zip(names, costs, strict=True)
        }
    return found


def crowd(polling: int, transferring: int, piece: int) -> dict[str, Any]:
    """Memory of the gateway and delays of its news, while so many silos poll and some of them transfer."""
    with scene(transferring, polling) as there:
        pid = there.gateway.process.pid
        idle = _memory(pid, "VmRSS")
        Path(f"/proc/{pid}/clear_refs").write_text("5")  # resets VmHWM (proc(5))
        # In a process of its own, whose work does not delay the clock of those that wait.
        at_work = multiprocessing.get_context("fork").Process(
            target=lambda: run_event_loop(_all_both_ways(there, transferring, piece))
        )
        began = time.monotonic()
        at_work.start()
        delays = sorted(run_event_loop(_waiting(there, at_work)))
        seconds, peak = time.monotonic() - began, _memory(pid, "VmHWM")
        if at_work.exitcode:
            raise SystemExit("a transfer failed")
    return {
        "body MB": piece / MB,
        "silos": polling,
        "transferring": transferring,
        "idle MB": round(idle / MB),
        "peak MB": round(peak / MB),
        "above MB": round((peak - idle) / MB),
        "seconds": round(seconds, 1),
        "news": len(delays),
        "news p50 ms": round(1000 * delays[len(delays) // 2], 1),
        "news p99 ms": round(1000 * delays[math.ceil(0.99 * len(delays)) - 1], 1),
    }


async def _waiting(there: Scene, at_work: BaseProcess) -> list[float]:
    """Seconds that news took, until the others have done their work."""
    tls = ssl.create_default_context(cadata=there.gateway.ca)
    connector = aiohttp.TCPConnector(ssl=tls, limit=0)
    async with aiohttp.ClientSession(connector=connector) as session:
        delays: list[float] = []
        answered: dict[str, asyncio.Future[float]] = {}
        polls = [asyncio.create_task(_poll(session, there, silo, answered)) for silo in there.silos]
        news = asyncio.create_task(_news(there, answered, delays))
        await asyncio.to_thread(at_work.join)
        for task in (news, *polls):
            task.cancel()
        await asyncio.gather(news, *polls, return_exceptions=True)
    return delays


async def _all_both_ways(there: Scene, transferring: int, piece: int) -> None:
    await asyncio.sleep(SETTLE_SECONDS)
    await asyncio.gather(*(_both_ways(there, silo, piece) for silo in there.silos[:transferring]))


def _memory(pid: int, name: str) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))


async def _poll(
    session: aiohttp.ClientSession, there: Scene, silo: Silo, answered: dict[str, asyncio.Future[float]]
) -> None:
    """Wait for news all the time; somebody may wait for the next answer that brings any."""
    revision = ""
    while True:
        path = f"/v1/silos/{silo.reference}/agents?after={revision}&wait=60"
        proof = sign_request(
            silo.key,
            job=there.gateway.hub,
            sender=silo.reference,
            method="GET",
            path=path,
            body=None,
            now=time.time(),
        )
        headers = {"Authorization": proof}
        async with session.get(there.gateway.url + path, headers=headers) as answer:
            await answer.read()
            arrived = time.monotonic()
            if answer.status == 200:
                revision = answer.headers["Revision"]
                if (waiting := answered.pop(silo.name, None)) is not None:
                    waiting.set_result(arrived)


async def _news(there: Scene, answered: dict[str, asyncio.Future[float]], delays: list[float]) -> None:
    """Change one SiloAgent after the other, and write down how long the silo that it concerns did not know."""
    await asyncio.sleep(SETTLE_SECONDS)
    number, loop = 0, asyncio.get_running_loop()
    while True:
        silo = there.silos[-1 - number % len(there.silos)]
        turn = bool(number // len(there.silos) % 2)
        arrival = answered[silo.name] = loop.create_future()
        changed = await asyncio.to_thread(there.gateway.put, agent(silo, there.aggregator, suspend=not turn))
        delays.append(await arrival - changed)
        number += 1
        await asyncio.sleep(CHANGE_SECONDS)


async def _both_ways(there: Scene, silo: Silo, piece: int) -> None:
    """Download the model and upload an update, in bodies of so many bytes."""
    peer = there.peer(silo, through=True)
    async with AggregatorClient(peer) as client:
        task, digest = await there.task(silo, client)
    blob, update = silo.directory / "model", silo.directory / "update"
    tls = ssl.create_default_context(cadata=peer.ca)
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(ssl=tls), read_bufsize=1 << 20
    ) as session:
        await _download(session, peer, task.blobs[0], blob, piece)
        await asyncio.to_thread(write_answer, silo, task, digest, blob, update)
        await _upload(session, peer, task, update, piece)
    blob.unlink()
    update.unlink()


async def _download(
    session: aiohttp.ClientSession, peer: Peer, link: BlobLink, blob: Path, piece: int
) -> None:
    path = f"/v1/jobs/{JOB}/blobs/{link.digest}"
    with blob.open("wb") as file:
        for begin in range(0, link.length, piece):
            headers = {"Range": f"bytes={begin}-{min(begin + piece, link.length) - 1}"}
            async with session.get(peer.url + path, headers=headers | _proof(peer, "GET", path)) as answer:
                async for part in answer.content.iter_any():
                    file.write(part)


async def _upload(session: aiohttp.ClientSession, peer: Peer, task: Task, update: Path, piece: int) -> None:
    with update.open("rb") as file:
        name = hashlib.file_digest(file, "sha256").hexdigest()
    length, path = update.stat().st_size, f"/v1/jobs/{JOB}/updates/{task.task}"
    for begin in range(0, length, piece):
        size = min(piece, length - begin)
        headers = {"Upload-Offset": str(begin), "Upload-Length": str(length), "Upload-Digest": name}
        headers |= {"Content-Length": str(size)} | _proof(peer, "PATCH", path)
        body = _part(update, begin, size)
        async with session.patch(peer.url + path, headers=headers, data=body) as answer:
            assert answer.status in (201, 204), await answer.text()


async def _part(path: Path, begin: int, size: int) -> AsyncIterator[bytes]:
    with path.open("rb") as file:
        file.seek(begin)
        while size:
            data = file.read(min(size, 1 << 20))
            size -= len(data)
            yield data


def _proof(peer: Peer, method: str, path: str) -> dict[str, str]:
    proof = sign_request(
        peer.key, job=peer.job, sender=peer.sender, method=method, path=path, body=None, now=time.time()
    )
    return {"Authorization": proof}


def main() -> None:
    """Print both parts."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gateway", description="Rate, memory and delays."
    )
    parser.add_argument(
        "--pairs", type=int, default=8, help="pairs of transfers, direct and through the gateway"
    )
    parser.add_argument("--polling", type=int, default=POLLS, help="silos that wait for news")
    parser.add_argument("--transferring", type=int, default=AT_ONCE, help="of them, silos that transfer")
    args = parser.parse_args()
    if args.pairs:
        for direction, found in run_event_loop(throughput(args.pairs)).items():
            print(json.dumps({"direction": direction} | found), flush=True)
    if args.polling:
        for piece in (SMALL_BYTES, LARGE_BYTES):
            print(json.dumps(crowd(args.polling, args.transferring, piece)), flush=True)


if __name__ == "__main__":
    main()
