"""Requests without a proof, with half of one, a late one, and those of other paths, hubs, keys and silos.

By: a stranger who has seen the protocol's documentation, and a silo with its own key.

Must: refused with the code that the specification names for each; the aggregator hears of none.
"""

from __future__ import annotations

import time

from attacks.live_gateway import ATTACKER, HONEST_SILO, LiveGateway
from fedsilo.wire import SigningKey


def attack(target: LiveGateway) -> None:
    path = f"{target.silo_path()}/agents?after=&wait=0"
    theirs = f"{target.silo_path(HONEST_SILO)}/agents?after=&wait=0"
    proof = target.proof("GET", path)
    wrong = {
        "malformed": ["", "Bearer abc"],
        "truncated": [proof[:80]],
        "too-long": ["Fedsilo " + "A" * 6000],
        "signature-invalid": [
            target.proof("GET", target.silo_path()),
            target.proof("GET", path, key=SigningKey.generate()),
        ],
        "proof-expired": [target.proof("GET", path, now=time.time() - 3600)],
        "wrong-job": [target.proof("GET", path, job="0123456789abcdef")],
    }
    for code, proofs in wrong.items():
        for given in proofs:
            target.expect(code, target.ask("GET", path, proof=given))
    target.expect("signature-invalid", target.ask("GET", theirs, sender=HONEST_SILO))
    target.expect("unknown-sender", target.ask("GET", theirs, sender=ATTACKER))
    target.expect("signature-invalid", target.ask("GET", target.blob, key=SigningKey.generate()))
    time.sleep(0.5)  # its proven requests are few, and stay within its rate
