"""Tensors that are cut and written whole again while the guard reads them, as fast as one can.

By: a hostile trainer, which writes into the drop.

Must: the guard lives; what leaves is whole, with the digests of its header, or nothing leaves.
"""

from __future__ import annotations

import hashlib
import os
import threading

from attacks.live_guard import LiveGuard
from attacks.programs import NotRefusedError
from tests.integration.service.client import contents_of, header_of
from tests.integration.service.site import wait_until

RUNS_ONCE = True
NUMBER = 5


def attack(target: LiveGuard) -> None:
    aggregator = target.aggregator
    for _ in range(NUMBER):
        task = target.name()
        path, stop = aggregator.drop(task) / "tensors", threading.Event()
        whole = path.read_bytes()

        def tear(stop: threading.Event = stop, whole: bytes = whole, name: str = str(path)) -> None:
            with open(name, "r+b") as file:  # noqa: PTH123
                while not stop.is_set():
                    file.truncate(10)
                    os.pwrite(file.fileno(), whole, 0)

        tearing = threading.Thread(target=tear)
        tearing.start()
        aggregator.offer(aggregator.task(task))
        wait_until(lambda task=task: {"acknowledged", "refused"} & set(aggregator.events(task)), task)  # type: ignore[misc]
        stop.set()
        tearing.join()
        for update in aggregator.uploads[task]:
            for block, content in zip(header_of(update).blocks, contents_of(update), strict=True):
                if hashlib.sha256(content).digest() != block.digest:
                    raise NotRefusedError("what was sent is not what was checked")
        target.note("whole" if aggregator.uploads[task] else "refused")
