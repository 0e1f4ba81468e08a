"""Secrets divided so that a threshold of the parts gives them back and fewer say nothing.

Shamir, "How to Share a Secret", Communications of the ACM 1979: a secret is the value at 0 of a polynomial of degree
threshold - 1 over the integers modulo a prime, and a share its value elsewhere.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

PRIME = 2**521 - 1
"""A Mersenne prime above all secrets of 32 bytes, by so much that coefficients of 80 bytes modulo it are uniform."""

SECRET_BYTES = 32
SHARE_BYTES = 66


def split(secret: bytes, threshold: int, points: Sequence[int], source: bytes) -> dict[int, bytes]:
    """Share of each point, a number from 1.

    :param source: 32 secret bytes from which the coefficients follow, so that the same shares come again.
    """
    assert len(secret) == SECRET_BYTES, "a secret has 32 bytes"
    assert 1 <= threshold <= len(points) and min(points) >= 1, "points are numbers from 1"
    assert len(set(points)) == len(points), "points differ"
    coefficients = [int.from_bytes(secret, "big")]
    for degree in range(1, threshold):
        drawn = hashlib.shake_256(b"fedsilo/shamir/v1" + degree.to_bytes(4, "big") + source).digest(80)
        coefficients.append(int.from_bytes(drawn, "big") % PRIME)
    return {point: _value(coefficients, point).to_bytes(SHARE_BYTES, "big") for point in points}


def combine(shares: Mapping[int, bytes], threshold: int) -> bytes | None:
    """The secret of the first so many shares; None where they are of no secret of 32 bytes.

    :param shares: point -> share, as many as the threshold or more.
    """
    points = sorted(shares)[:threshold]
    total = 0
    for point in points:
        numerator = denominator = 1
        for other in points:
            if other != point:
                numerator = numerator * other % PRIME
                denominator = denominator * (other - point) % PRIME
        value = int.from_bytes(shares[point], "big")
        total = (total + value * numerator * pow(denominator, -1, PRIME)) % PRIME
    return total.to_bytes(SECRET_BYTES, "big") if total < 2 ** (8 * SECRET_BYTES) else None


def _value(coefficients: Sequence[int], point: int) -> int:
    value = 0
    for coefficient in reversed(coefficients):
        value = (value * point + coefficient) % PRIME
    return value
