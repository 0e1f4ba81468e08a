"""90 long polls of one silo at once, each for a minute.

By: a silo with its own key.

Must: only as many wait as a silo may have requests; the others are refused as `too-many-requests`, or closed.
"""

from __future__ import annotations

import time

from attacks.live_gateway import LiveGateway
from fedsilo_operator.gateway.limits import Limits

RUNS_ONCE = True
NUMBER = 90


def attack(target: LiveGateway) -> None:
    time.sleep(10)  # so that it has its requests, whatever came before
    path = f"{target.silo_path()}/agents?after=&wait=0"
    revision = target.ask("GET", path).headers["Revision"]
    head = target.head("GET", f"{target.silo_path()}/agents?after={revision}&wait=60")
    with target.connections(NUMBER, head) as opened:
        target.expect_closed(opened, NUMBER - Limits().open_requests, seconds=3)
    time.sleep(1)
