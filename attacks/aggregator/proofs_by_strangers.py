"""Proofs that are signed as they should be, by a key that no silo has, in the name of a silo of the job and of another.

By: a stranger with a key of his own.

Must: refused as `signature-invalid` or `unknown-sender`, on every path.
"""

from __future__ import annotations

import time

from attacks.live_aggregator import LiveAggregator
from fedsilo.wire import SigningKey, sign_request

KEY = SigningKey.generate()


def attack(target: LiveAggregator) -> None:
    for sender, code in ((target.silo.silo, "signature-invalid"), ("silo-mallory/mallory", "unknown-sender")):
        for path in (
            target.ask,
            f"{target.base}/blobs/{'0' * 64}",
            f"{target.base}/updates/r00001-train-north",
        ):
            proof = sign_request(
                KEY, job=target.site.uid, sender=sender, method="GET", path=path, body=None, now=time.time()
            )
            target.expect(code, target.silo.request("GET", path, proof=proof))
