"""Paths out of the job's directory, percent-encoded, in Unicode, with zero bytes, with an encoded job, and paths and
methods that the protocol does not have.

By: a silo of the job with its own key.

Must: refused as `unknown-task`, `unknown-blob`, `wrong-job` or `malformed`; no file is opened by a name from outside.
"""

from __future__ import annotations

from attacks.live_aggregator import LiveAggregator

DIGEST = {"Upload-Digest": "0" * 64}


def attack(target: LiveAggregator) -> None:
    silo, base = target.silo, target.base
    for task in (
        "..%2F..%2Fstate.json",
        "%2Fetc%2Fpasswd",
        ".",
        "a%00b",
        "%E2%80%AE",
        "x" * 300,
        "r00001%2Dtrain",
    ):
        target.expect("unknown-task", silo.request("HEAD", f"{base}/updates/{task}", DIGEST))
    for digest in ("..%2Fstate.json", "%2e%2e%2fjob.json", "%2Fetc%2Fpasswd", "0" * 64, "%FF%FE"):
        target.expect("unknown-blob", silo.request("GET", f"{base}/blobs/{digest}"))
    for way in ("blobs/../state.json", "blobs/a/b", "blobs/", "status.json", "task/", "TASK"):
        target.expect("malformed", silo.request("GET", f"{base}/{way}"))
    for path in ("/", "/v1/jobs/another/task", base.upper(), f"/{base}/task", "/healthz/../v1"):
        target.expect("wrong-job", silo.request("GET", path))
    for method in ("DELETE", "PUT", "OPTIONS", "TRACE", "PROPFIND"):
        target.expect("malformed", silo.request(method, f"{base}/updates/{target.task}"))
