"""Parts of a blob that it does not have: beyond its end, backwards, two at once, a thousand at once, in other units, of
10^30 bytes.

By: a silo of the job with its own key.

Must: refused as `range-not-satisfiable`, with the length that the blob has.
"""

from __future__ import annotations

from attacks.live_aggregator import LiveAggregator
from attacks.programs import NotRefusedError


def attack(target: LiveAggregator) -> None:
    link = target.fetched_task.task.blobs[0]
    path = f"{target.base}/blobs/{link.digest}"
    for wanted in (
        f"bytes={link.length}-",
        "bytes=5-2",
        "bytes=0-1,5-6",
        "bytes=" + ",".join("0-" for _ in range(1000)),
        "rows=1-2",
        f"bytes={10**30}-",
    ):
        answer = target.silo.request("GET", path, {"Range": wanted})
        target.expect("range-not-satisfiable", answer)
        if answer.headers["Content-Range"] != f"bytes */{link.length}":
            raise NotRefusedError(f"Content-Range is {answer.headers['Content-Range']}")
