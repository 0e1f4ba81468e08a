"""What the protocol is made of: integers for numbers, divided secrets, and masks that vanish in a sum."""

from __future__ import annotations

import math

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from fedsilo.errors import Problem
from fedsilo.secure_aggregation.fixed_point import FixedPoint
from fedsilo.secure_aggregation.masks import PIECE_NUMBERS, add_mask, agreed_secret, public_of
from fedsilo.secure_aggregation.shamir import PRIME, combine, split

SECRETS = st.binary(min_size=32, max_size=32)


@given(
    silos=st.integers(2, 50),
    bound=st.floats(1e-3, 1e9),
    parts=st.lists(st.floats(-1, 1), min_size=50, max_size=50),
)
def test_sums_are_exact_to_the_stated_error(silos: int, bound: float, parts: list[float]) -> None:
    encoding = FixedPoint(silos, bound)
    values = [np.array([part * bound, -part * bound, bound]) for part in parts[:silos]]
    total = np.zeros(3, np.uint64)
    for value in values:
        np.add(total, encoding.encode(value), out=total)
    found = encoding.decode(total)
    plain = [math.fsum(value[place] for value in values) for place in range(3)]
    assert np.abs(found - plain).max() <= encoding.error
    assert encoding.error <= silos * bound * 2.0**-50 * silos


@pytest.mark.parametrize("value", [1.0001, -1.0001, np.inf, np.nan])
def test_what_might_overflow_is_not_encoded(value: float) -> None:
    with pytest.raises(Problem, match=r"number 1 is .*, beyond the bound 1; nothing is sent"):
        FixedPoint(3, 1.0).encode(np.array([0.5, value]))


def test_a_bound_that_does_not_fit_is_refused() -> None:
    with pytest.raises(Problem, match="does not fit into 64 bits"):
        FixedPoint(50, 2.0**60)


@given(secret=SECRETS, source=SECRETS, threshold=st.integers(1, 9), more=st.integers(0, 5), data=st.data())
def test_as_many_shares_as_the_threshold_give_the_secret(
    secret: bytes, source: bytes, threshold: int, more: int, data: st.DataObject
) -> None:
    points = list(range(1, threshold + more + 1))
    shares = split(secret, threshold, points, source)
    chosen = data.draw(st.permutations(points))[:threshold]
    assert combine({point: shares[point] for point in chosen}, threshold) == secret
    assert split(secret, threshold, points, source) == shares


@given(secret=SECRETS, other=SECRETS, source=SECRETS)
def test_fewer_shares_fit_every_secret(secret: bytes, other: bytes, source: bytes) -> None:
    """With one share less than the threshold there is for any secret a polynomial through the shares."""
    shares = split(secret, 3, [1, 2, 3], source)
    known = {0: int.from_bytes(other, "big")} | {
        point: int.from_bytes(shares[point], "big") for point in (1, 2)
    }
    third = (3 * known[2] - 3 * known[1] + known[0]) % PRIME  # the polynomial of degree 2 through them, at 3
    assert combine({1: shares[1], 2: shares[2], 3: third.to_bytes(66, "big")}, 3) == other


@given(one=SECRETS, other=SECRETS)
def test_two_silos_agree_on_a_secret_of_their_own(one: bytes, other: bytes) -> None:
    first = agreed_secret(one, public_of(other), "mask", b"context")
    assert first == agreed_secret(other, public_of(one), "mask", b"context")
    assert first != agreed_secret(one, public_of(other), "shares", b"context")
    assert first != agreed_secret(one, public_of(other), "mask", b"another")


def test_a_public_key_of_small_order_is_refused() -> None:
    private = X25519PrivateKey.generate().private_bytes_raw()
    with pytest.raises(Problem, match="of small order"):
        agreed_secret(private, bytes(32), "mask", b"")


def test_masks_vanish_in_a_sum_and_look_like_chance() -> None:
    vector = np.zeros(PIECE_NUMBERS + 17, np.uint64)
    add_mask(vector, b"k" * 32, 1)
    shares = np.unpackbits(vector.view(np.uint8)).mean()
    assert shares == pytest.approx(0.5, abs=1e-3)
    assert len(np.unique(vector)) == vector.size
    add_mask(vector, b"k" * 32, -1)
    assert not vector.any()
