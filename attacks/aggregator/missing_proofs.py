"""Requests without a proof, with another scheme, with no base64, with no envelope, with half of one, with one of 6,000
bytes, with a changed signature.

By: a stranger who has seen the protocol's documentation.

Must: refused with the code that the specification names for each.
"""

from __future__ import annotations

import base64

from attacks.live_aggregator import LiveAggregator


def tampered_proof(proof: str) -> str:
    """The proof with one bit of its signature changed."""
    raw = proof.removeprefix("Fedsilo ")
    data = bytearray(base64.urlsafe_b64decode(raw + "=" * (-len(raw) % 4)))
    data[-1] ^= 1
    return "Fedsilo " + base64.urlsafe_b64encode(data).decode().rstrip("=")


def attack(target: LiveAggregator) -> None:
    honest = target.silo.proof("GET", target.ask)
    for proof, code in (
        ("", "malformed"),
        ("Bearer token", "malformed"),
        ("Fedsilo", "malformed"),
        ("Fedsilo !!!", "malformed"),
        ("Fedsilo AAAA", "malformed"),
        (f"{honest}=", "malformed"),
        (honest.replace("Fedsilo", "fedsilo"), "malformed"),
        (honest[:-40], "truncated"),
        ("Fedsilo " + "A" * 6000, "too-long"),
        (tampered_proof(honest), "signature-invalid"),
    ):
        target.expect(code, target.silo.request("GET", target.ask, proof=proof))
