"""Requests as fast as four connections take them.

By: a silo with its own key.

Must: beyond its rate refused as `too-many-requests`.
"""

from __future__ import annotations

from attacks.live_gateway import LiveGateway
from attacks.programs import NotRefusedError
from fedsilo_operator.gateway.limits import Limits
from tests.integration.service.client import answer_on

RUNS_ONCE = True
REQUESTS = 4 * Limits().burst


def attack(target: LiveGateway) -> None:
    path = f"{target.silo_path()}/agents?after=&wait=0"
    head = target.head("GET", path)
    with target.connections(4) as opened:
        for number in range(REQUESTS):
            connection = opened[number % len(opened)]
            connection.sendall(head)
            answer = answer_on(connection)
            target.note(f"{answer.status} {answer.code}".strip())
    if target.answers["429 too-many-requests"] < REQUESTS // 4:
        raise NotRefusedError(
            f"of {REQUESTS} requests only {target.answers['429 too-many-requests']} were refused"
        )
