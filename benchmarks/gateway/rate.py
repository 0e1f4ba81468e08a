"""Rates of transfers directly from and to the aggregator, and through the gateway, by turns.

Silo, gateway and aggregator share the machine's cores. A pair is a direct transfer and the one through the gateway
right after or before it; `ratio` is the median of the pairs' quotients of rates. `cpu` is what a transfer costs each of
the three, user and system. Transfers are over new connections.
"""

from __future__ import annotations

import asyncio
import statistics
from typing import Any

from benchmarks.gateway.link import Link
from benchmarks.gateway.scene import Figure, scene
from benchmarks.memory import MB, write_answer
from fedsilo.wire import signed_part, update_digest
from fedsilo_agent.guard.client import AggregatorClient


async def throughput(pairs: int, link: Link) -> dict[str, Any]:
    """Rates of both ways, by direction."""
    figures: dict[tuple[str, bool], list[Figure]] = {
        (direction, through): [] for direction in ("download", "upload") for through in (False, True)
    }
    size = 0
    with scene(2 * pairs, 0) as there:
        for number, silo in enumerate(there.silos):
            pair, second = divmod(number, 2)
            through = bool(second) != bool(pair % 2)  # which is first changes from pair to pair
            peer = there.peer(silo, through)
            link.lead_to(int(peer.url.rpartition(":")[2]))
            async with AggregatorClient(peer) as client:
                task, digest = await there.task(silo, client)
                blob, update = silo.directory / "model", silo.directory / "update"
                figures["download", through].append(await there.measure(client.download(task.blobs[0], blob)))
                await asyncio.to_thread(write_answer, silo, task, digest, blob, update)
                name = update_digest(signed_part(update))
                figures["upload", through].append(await there.measure(client.upload(task.task, update, name)))
                size = update.stat().st_size
                blob.unlink()
                update.unlink()
    return {
        direction: _comparison_figures(size, figures[direction, False], figures[direction, True])
        for direction in ("download", "upload")
    }


def _comparison_figures(size: int, direct: list[Figure], through: list[Figure]) -> dict[str, Any]:
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
