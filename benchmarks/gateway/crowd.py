"""Memory of the gateway and delays of its news, while many silos wait for news and some of them transfer.

Memory is the peak (VmHWM) above that of the gateway when it serves and nobody has asked; a delay is the time from a
SiloAgent's change to the answer of the poll that waits for it.
"""

from __future__ import annotations

import asyncio
import math
import multiprocessing
import ssl
import time
from collections.abc import AsyncIterator
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import aiohttp

from benchmarks.gateway.scene import Scene, agent, scene
from benchmarks.memory import JOB, MB, Silo, write_answer
from fedsilo.http.event_loop import run_event_loop
from fedsilo.wire import BlobLink, Task, sign_request, signed_part, update_digest
from fedsilo_agent.guard.client import AggregatorAddress, AggregatorClient

CHANGE_SECONDS = 0.05
"""Time between two changes of SiloAgents."""

SETTLE_SECONDS = 2.0
"""Time until all polls wait."""


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
    session: aiohttp.ClientSession, peer: AggregatorAddress, link: BlobLink, blob: Path, piece: int
) -> None:
    path = f"/v1/jobs/{JOB}/blobs/{link.digest}"
    with blob.open("wb") as file:
        for begin in range(0, link.length, piece):
            headers = {"Range": f"bytes={begin}-{min(begin + piece, link.length) - 1}"}
            async with session.get(peer.url + path, headers=headers | _proof(peer, "GET", path)) as answer:
                async for part in answer.content.iter_any():
                    file.write(part)


async def _upload(
    session: aiohttp.ClientSession, peer: AggregatorAddress, task: Task, update: Path, piece: int
) -> None:
    name = update_digest(signed_part(update))
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


def _proof(peer: AggregatorAddress, method: str, path: str) -> dict[str, str]:
    proof = sign_request(
        peer.key, job=peer.job, sender=peer.sender, method=method, path=path, body=None, now=time.time()
    )
    return {"Authorization": proof}
