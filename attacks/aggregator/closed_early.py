"""Connections that are cut right after their request: of a poll that is held, a download, an upload, a report.

By: a silo of the job with its own key.

Must: nothing remains of them, and nothing is logged as a defect.
"""

from __future__ import annotations

from attacks.live_aggregator import LiveAggregator


def attack(target: LiveAggregator) -> None:
    digest = target.fetched_task.task.blobs[0].digest
    poll = f"{target.base}/task?after={target.task}&wait=60"
    for head in (
        target.head("GET", poll),
        target.head("GET", f"{target.base}/blobs/{digest}"),
        target.head("POST", f"{target.base}/failures/{target.task}", {"Content-Length": "100"}),
        target.head("PATCH", f"{target.base}/updates/{target.task}", {"Content-Length": "100"}),
    ):
        for _ in range(5):
            with target.connect() as connection:
                connection.sendall(head)
            target.note("cut")
