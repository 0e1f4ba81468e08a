"""Downloads of the model that are cut after some bytes and taken up elsewhere, forty times over.

By: a silo of the job with its own key, or its network.

Must: each part has the bytes that it should have, and the file that was sent is closed.
"""

from __future__ import annotations

from pathlib import Path

from attacks.live_aggregator import LiveAggregator
from attacks.programs import NotRefusedError


def attack(target: LiveAggregator) -> None:
    link = target.fetched_task.task.blobs[0]
    path = f"{target.base}/blobs/{link.digest}"
    whole = target.silo.request("GET", path).body
    for number in range(40):
        start = number * link.length // 40
        with target.connect() as connection:
            connection.sendall(target.head("GET", path, {"Range": f"bytes={start}-"}))
            body = connection.recv(1 << 16).partition(b"\r\n\r\n")[2]
            if whole[start : start + len(body)] != body:
                raise NotRefusedError(f"other bytes from {start} on")
        target.note("206 cut")
    files = [
        path.readlink() for path in Path(f"/proc/{target.process.pid}/fd").iterdir() if path.is_symlink()
    ]
    if sum(link.digest in str(file) for file in files) > 20:
        raise NotRefusedError("the aggregator keeps the files of cut downloads open")
