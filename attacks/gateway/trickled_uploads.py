"""60 uploads of 10^9 bytes that send a byte at a time.

By: a silo with its own key.

Must: no more than as many as a silo may have requests are under way, and nothing of them is collected.
"""

from __future__ import annotations

import time

from attacks.live_gateway import LiveGateway
from attacks.live_service import trickle
from fedsilo_operator.gateway.limits import Limits

RUNS_ONCE = True
NUMBER = 60


def attack(target: LiveGateway) -> None:
    time.sleep(6)  # so that it has its requests, whatever came before
    head = target.head("PATCH", target.update, {"Content-Length": str(10**9)})
    with target.connections(NUMBER, head) as opened:
        trickle(opened, 4)
        target.expect_closed(opened, NUMBER - Limits().open_requests, seconds=1)
