"""Thousands of requests for the model in one piece over each of 16 connections, of whose answers nothing is read.

By: a silo of the job with its own key.

Must: no more is read from the disk or held in memory than one piece for each connection.
"""

from __future__ import annotations

import contextlib
import time

from attacks.live_aggregator import LiveAggregator

RUNS_ONCE = True
REQUESTS = 50
SECONDS = 4.0


def attack(target: LiveAggregator) -> None:
    path = f"{target.base}/blobs/{target.fetched_task.task.blobs[0].digest}"
    head = target.head("GET", path)
    with target.connections(16, head * REQUESTS) as opened:
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            for connection in opened:
                with contextlib.suppress(OSError):
                    connection.settimeout(0.01)
                    connection.send(head)
            time.sleep(0.05)
        target.note("held back", len(opened))
