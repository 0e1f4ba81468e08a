"""Proofs of a silo in the name of another silo, and of another job.

By: a silo of the job with its own key.

Must: refused as `signature-invalid` and `wrong-job`.
"""

from __future__ import annotations

from attacks.live_aggregator import LiveAggregator


def attack(target: LiveAggregator) -> None:
    silo = target.silo
    for changes, code in (
        ({"sender": target.other.silo}, "signature-invalid"),
        ({"sender": "silo-nobody/nobody"}, "unknown-sender"),
        ({"job": "11111111-2222-3333-4444-555555555555"}, "wrong-job"),
    ):
        target.expect(
            code, silo.request("GET", target.ask, proof=silo.proof("GET", target.ask, None, **changes))
        )
