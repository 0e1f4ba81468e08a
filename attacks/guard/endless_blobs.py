"""A blob that does not end, with and without a length, and one that ends early again and again.

By: a hostile aggregator with the job's task key.

Must: read as far as the task says; tried again at most every two seconds, until another task replaces it.
"""

from __future__ import annotations

import time
from http.server import BaseHTTPRequestHandler

from attacks.live_guard import LiveGuard, answer, endless
from attacks.programs import NotRefusedError
from fedsilo.wire import BlobLink

RUNS_ONCE = True
SECONDS = 3.0
MOST_REQUESTS = 30
BLOB_BYTES = 1 << 20


def attack(target: LiveGuard) -> None:
    def short(request: BaseHTTPRequestHandler) -> bool:
        return answer(request, 200, b"x" * 10)

    for number, how in enumerate((endless, short)):
        before = target.requests
        link = BlobLink("model", f"{number + 7:064x}", BLOB_BYTES)
        with target.answering(lambda request, how=how: "/blobs/" in request.path and how(request)):  # type: ignore[misc]
            target.aggregator.offer(target.aggregator.task(target.name(), blobs=(link,)))
            time.sleep(SECONDS)
            kept = sum(path.stat().st_size for path in target.aggregator.volume.blobs.iterdir())
        if kept > BLOB_BYTES + (1 << 20):
            raise NotRefusedError(f"the guard kept {kept} bytes of a blob of {BLOB_BYTES}")
        asked = target.requests - before
        if asked > MOST_REQUESTS:
            raise NotRefusedError(f"the guard asked {asked} times in {SECONDS:g} s")
        target.note("asked", asked)
