"""Changes to bytes, drawn from any source of integers: hypothesis in the suite, a random generator in the campaign."""

from __future__ import annotations

from collections.abc import Callable, Sequence

Choose = Callable[[int], int]
"""A number from 0 to n - 1."""

MAX_CHANGES = 6
MAX_BYTES = 1 << 16

BOUNDARIES = tuple(
    number.to_bytes(size, order, signed=number < 0)
    for size in (1, 2, 4, 8)
    for number in (0, 1, -1, 1 << (8 * size - 1), (1 << (8 * size)) - 1)
    for order in ("big", "little")
)
"""Integers at which lengths and counts go wrong."""

TOKENS = (
    *(b"\x90", b"\x91", b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff"),  # msgpack
    *(
        b"\xcb\x7f\xf0\x00\x00\x00\x00\x00\x00",
        b"\xcb\x7f\xf8\x00\x00\x00\x00\x00\x00",
    ),  # infinity, not a number
    *(b"[", b"{", b'"', b"null", b"NaN", b"1e999", b"\\ud800", b"-0", b"true"),  # JSON
    *(b"!!int ", b"!!bool ", b"!!str ", b"&a ", b"*a", b"<<: ", b"\n---\n", b"\t", b"\xef\xbb\xbf"),  # YAML
    *(b"PK\x01\x02", b"PK\x03\x04", b"PK\x05\x06"),  # zip
)


def mutated_input(seeds: Sequence[bytes], choose: Choose) -> bytes:
    """One of the seeds after some changes, at most `MAX_BYTES` long."""
    data = seeds[choose(len(seeds))]
    for _ in range(choose(MAX_CHANGES)):
        data = _CHANGES[choose(len(_CHANGES))](data, seeds, choose)[:MAX_BYTES]
    return data


def _flip(data: bytes, _: Sequence[bytes], choose: Choose) -> bytes:
    if not data:
        return data
    place = choose(len(data))
    return _replace_bytes(data, place, 1, bytes([data[place] ^ 1 << choose(8)]))


def _write(data: bytes, _: Sequence[bytes], choose: Choose) -> bytes:
    new = BOUNDARIES[choose(len(BOUNDARIES))]
    return _replace_bytes(data, choose(len(data) + 1), len(new), new)


def _insert(data: bytes, _: Sequence[bytes], choose: Choose) -> bytes:
    return _replace_bytes(data, choose(len(data) + 1), 0, TOKENS[choose(len(TOKENS))])


def _repeat(data: bytes, _: Sequence[bytes], choose: Choose) -> bytes:
    start, size = choose(len(data) + 1), 1 + choose(64)
    return _replace_bytes(data, start, 0, data[start : start + size] * (1 + choose(64)))


def _remove(data: bytes, _: Sequence[bytes], choose: Choose) -> bytes:
    return _replace_bytes(data, choose(len(data) + 1), 1 + choose(64), b"")


def _cut(data: bytes, _: Sequence[bytes], choose: Choose) -> bytes:
    return data[: choose(len(data) + 1)]


def _splice(data: bytes, seeds: Sequence[bytes], choose: Choose) -> bytes:
    other = seeds[choose(len(seeds))]
    return data[: choose(len(data) + 1)] + other[choose(len(other) + 1) :]


def _replace_bytes(data: bytes, start: int, size: int, new: bytes) -> bytes:
    return data[:start] + new + data[start + size :]


_CHANGES = (_flip, _write, _insert, _repeat, _remove, _cut, _splice)
