"""Proofs of an hour ago, of an hour ahead, and of one second beyond the permitted clock skew on either side.

By: a silo of the job with its own key.

Must: refused as `proof-expired`, those within the skew accepted.
"""

from __future__ import annotations

import time

from attacks.live_aggregator import LiveAggregator
from attacks.programs import NotRefusedError
from fedsilo.wire.request import CLOCK_SKEW_SECONDS

LIFETIME_SECONDS = 60
"""Lifetime that `sign_request` grants to a proof."""


def attack(target: LiveAggregator) -> None:
    late, early = LIFETIME_SECONDS + CLOCK_SKEW_SECONDS, -CLOCK_SKEW_SECONDS
    for age in (3600, -3600, late + 3, early - 3):
        proof = target.silo.proof("GET", target.ask, now=time.time() - age)
        target.expect("proof-expired", target.silo.request("GET", target.ask, proof=proof))
    for age in (late - 5, early + 5):
        proof = target.silo.proof("GET", target.ask, now=time.time() - age)
        if target.silo.request("GET", target.ask, proof=proof).status != 200:
            raise NotRefusedError("a proof within the clock skew was refused")
