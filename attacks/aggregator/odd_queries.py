"""Queries with fields that do not exist, twice, with waits that are negative, infinite or not a number, of 2,000
characters, and of an upload.

By: a silo of the job with its own key.

Must: refused as `malformed`.
"""

from __future__ import annotations

from attacks.live_aggregator import LiveAggregator


def attack(target: LiveAggregator) -> None:
    for query in (
        "debug=1",
        "wait=0&debug=1",
        "after=a&after=b",
        "wait=-1",
        "wait=nan",
        "wait=inf",
        "wait=1e9",
        "wait=" + "9" * 30,
        "wait=%D9%A1",
        "&".join(f"a{number}=1" for number in range(300)),
    ):
        target.expect("malformed", target.silo.request("GET", f"{target.base}/task?{query}"))
    path = f"{target.base}/updates/{target.task}?force=1"
    target.expect("malformed", target.silo.request("HEAD", path, {"Upload-Digest": "0" * 64}))
