"""100 failure reports and 100 uploads whose bodies arrive byte by byte, with a proof that is none.

By: a stranger without a key.

Must: the uploads are refused before their bodies; all are closed ten seconds after they began.
"""

from __future__ import annotations

from attacks.live_aggregator import LiveAggregator
from attacks.live_service import trickle
from fedsilo.http.listener import UNPROVEN_SECONDS

RUNS_ONCE = True
NUMBER = 100


def attack(target: LiveAggregator) -> None:
    length = {"Content-Length": "16000"}
    report = target.head("POST", f"{target.base}/failures/r00001-train-north", length, "Fedsilo A")
    upload = target.head("PATCH", f"{target.base}/updates/r00001-train-north", length, "Fedsilo A")
    with target.connections(NUMBER, report) as reports, target.connections(NUMBER, upload) as uploads:
        trickle((*reports, *uploads), UNPROVEN_SECONDS + 2)
        target.expect_closed((*reports, *uploads), 2 * NUMBER)
