"""Proofs of 4 KB whose header is lists, maps, keys or texts in one another, as costly to decode as they can be.

By: a stranger without a key.

Must: each is refused before anything is decoded of which an element is missing; `/healthz`, asked meanwhile, is not
held up.
"""

from __future__ import annotations

import time

from attacks.live_aggregator import LiveAggregator
from tests.integration.service.client import Answer
from tests.unit.wire.hostile_proofs import HEADERS, proof

PROOFS = {name: proof(header) for name, header in HEADERS.items()}
CODES = frozenset({"malformed", "too-long", "signature-invalid", "unknown-sender"})
"""Codes of the refusals: for a proof's form, its length, and the signature that it does not have."""


def attack(target: LiveAggregator) -> None:
    connection = target.silo.connect()
    health = target.silo.connect()
    health.request("GET", "/healthz")
    health.getresponse().read()
    for value in PROOFS.values():
        connection.request("GET", target.ask, headers={"Authorization": value})
        began = time.monotonic()
        health.request("GET", "/healthz")
        health.getresponse().read()
        target.health.append(time.monotonic() - began)
        response = connection.getresponse()
        answer = Answer(response.status, response.headers, response.read())
        target.expect(answer.code if answer.code in CODES else "malformed", answer)
    connection.close()
    health.close()
