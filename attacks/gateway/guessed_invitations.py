"""Enrolments with guessed tokens and keys of the stranger's own, in the name of a silo that has enrolled.

By: a stranger who knows the silo's name.

Must: refused as `invitation-invalid`; they cost the silo none of its requests.
"""

from __future__ import annotations

import json

from attacks.live_gateway import HONEST_SILO, LiveGateway
from fedsilo.wire import SigningKey

GUESSES = 50


def attack(target: LiveGateway) -> None:
    key = SigningKey.generate()
    for guess in range(GUESSES):
        enrolment = {"silo": HONEST_SILO, "token": f"guess {guess}", "publicKey": key.verify_key.to_text()}
        body = json.dumps(enrolment | {"version": "0.1.0"}).encode()
        answer = target.ask("POST", "/v1/enrolments", body, sender=HONEST_SILO, key=key)
        target.expect("invitation-invalid", answer)
