"""60 downloads of which nothing is read.

By: a silo with its own key.

Must: no more than as many as a silo may have requests are under way, and each takes the memory of a chunk.
"""

from __future__ import annotations

import time

from attacks.live_gateway import LiveGateway
from fedsilo_operator.gateway.limits import Limits

RUNS_ONCE = True
NUMBER = 60


def attack(target: LiveGateway) -> None:
    time.sleep(6)  # so that it has its requests, whatever came before
    with target.connections(NUMBER, target.head("GET", target.blob)) as opened:
        time.sleep(4)
        target.note("held back", min(len(opened), Limits().open_requests))
