"""Canonical msgpack maps, and the strict reading of their fields.

What is signed must mean the same to everybody who reads it. So a map has exactly one encoding (every length
and integer in its shortest form, floats as float64, no extension types, no key twice), and a reader names
each field it wants, with type and range; anything else is refused as `malformed`.
"""

from __future__ import annotations

import math
import re
import reprlib
from collections.abc import Mapping
from typing import Any

import msgpack

from fedsilo.errors import Problem

PROTOCOL = 1
TOKEN = re.compile(r"[!-~]{1,200}")
MAX_INTEGER = (1 << 63) - 1

_MAX_ITEMS = 1 << 16
_MAX_DEPTH = 8
_SCALARS = (bool, int, float, str, bytes)

_short_repr = reprlib.Repr()
_short_repr.maxlevel = (
    2  # what is quoted of a value that anybody may have sent takes no longer for being nested
)


def pack(value: object) -> bytes:
    """The canonical msgpack encoding of plain values."""
    packed: bytes = msgpack.packb(value, use_bin_type=True)
    return packed


def unpack_map(what: str, data: bytes, depth: int = _MAX_DEPTH) -> dict[str, Any]:
    """Decode one canonical msgpack map with text keys.

    :param what: the name of the object in error messages.
    :param depth: levels of maps and lists that it may have; 1 where all its values are scalars.
    :raises Problem: `malformed`.
    """
    try:
        _require_whole(data)
        value = msgpack.unpackb(
            data, raw=False, strict_map_key=True, max_array_len=_MAX_ITEMS, max_map_len=_MAX_ITEMS
        )
        plain = isinstance(value, dict) and _is_plain(value, depth)
        canonical = plain and pack(value) == data
    except (ValueError, TypeError, OverflowError, RecursionError, msgpack.OutOfData) as error:
        raise Problem("malformed", f"{what}: not msgpack ({error}); send one canonical msgpack map") from None
    if not plain:
        raise Problem(
            "malformed",
            f"{what}: {_short_repr.repr(value)} is not a map of plain values with text keys; send one",
        )
    if not canonical:
        raise Problem("malformed", f"{what}: not canonical msgpack; use shortest forms and each key once")
    return dict(value)


def _require_whole(data: bytes) -> None:
    """Walk over the first object and make nothing of it; no element of it is missing when this returns.

    msgpack reserves memory for a list as soon as it reads its length, and 512 lists may lie in one another: a few KB
    that nobody has signed could claim hundreds of MB. An element has at least a byte, so memory and time grow with the
    input alone once all are known to be there.

    :raises msgpack.OutOfData: when it ends too early.
    :raises ValueError: when it is no msgpack, or too deep.
    """
    unpacker = msgpack.Unpacker(max_buffer_size=max(len(data), 1))
    unpacker.feed(data)
    unpacker.skip()


def _is_plain(value: object, depth: int) -> bool:
    if isinstance(value, dict):
        return depth > 0 and all(type(k) is str and _is_plain(v, depth - 1) for k, v in value.items())
    if isinstance(value, list):
        return depth > 0 and all(_is_plain(v, depth - 1) for v in value)
    return type(value) in _SCALARS


def check_protocol(what: str, value: Mapping[str, object]) -> None:
    """Refuse another protocol version before its fields, which may be different ones, are read.

    :raises Problem: `unsupported`.
    """
    version = value.get("protocol")
    if type(version) is int and version != PROTOCOL:
        raise Problem(
            "unsupported", f"{what}: protocol {version} is not known here; send protocol {PROTOCOL}"
        )


class FieldReader:
    """The fields of one map; each reader returns a checked value or raises `Problem("malformed")`.

    :param what: the name of the object in error messages.
    :param keys: exactly the keys that the map must have.
    :param ordered: whether they must come in that order, as in everything that is signed.
    """

    def __init__(self, what: str, value: object, keys: tuple[str, ...], *, ordered: bool = True) -> None:
        if not isinstance(value, dict):
            raise Problem(
                "malformed", f"{what}: {_short_repr.repr(value)} is not a map; send {', '.join(keys)}"
            )
        for key in value:
            if key not in keys:
                text = f"{_short_repr.repr(key)} = {_short_repr.repr(value[key])}"
                raise Problem("malformed", f"{what}: unknown field {text}; send only {', '.join(keys)}")
        for key in keys:
            if key not in value:
                raise Problem("malformed", f"{what}: field '{key}' is missing; send {', '.join(keys)}")
        if ordered and tuple(value) != keys:
            raise Problem("malformed", f"{what}: fields {', '.join(value)}; send them as {', '.join(keys)}")
        self.what = what
        self._value: dict[str, Any] = value

    def refuse(self, key: str, wanted: str, code: str = "malformed") -> Problem:
        """The problem of one field's value, to be raised."""
        return Problem(code, f"{self.what}: {key} is {_short_repr.repr(self._value[key])}; must be {wanted}")

    def text(self, key: str, limit: int = 200) -> str:
        """A text that is not empty, of printable ASCII without whitespace."""
        value = self._value[key]
        if type(value) is not str or len(value) > limit or not re.fullmatch(r"[!-~]+", value):
            raise self.refuse(key, f"1 to {limit} printable ASCII characters without whitespace")
        return value

    def integer(self, key: str, low: int = 0, high: int = MAX_INTEGER) -> int:
        """An integer from `low` to `high`, both included; true and false are not integers."""
        value = self._value[key]
        if type(value) is not int or not low <= value <= high:
            raise self.refuse(key, f"an integer from {low} to {high}")
        return value

    def binary(self, key: str, size: int) -> bytes:
        """Bytes of the field, exactly `size` of them."""
        value = self._value[key]
        if type(value) is not bytes or len(value) != size:
            raise self.refuse(key, f"{size} bytes")
        return value

    def items(self, key: str) -> list[Any]:
        """A list of anything."""
        value = self._value[key]
        if type(value) is not list:
            raise self.refuse(key, "a list")
        return value

    def shape(self, key: str) -> tuple[int, ...]:
        """A list of integers; their range is for `TensorSpec` to check."""
        value = self.items(key)
        if not all(type(size) is int for size in value):
            raise self.refuse(key, "a list of integers")
        return tuple(value)

    def scalars(self, key: str, types: tuple[type, ...]) -> dict[str, Any]:
        """A map from names (as in `text`), in sorted order, to finite scalars of the given types."""
        value = self._value[key]
        if type(value) is not dict or list(value) != sorted(value) or not all(map(TOKEN.fullmatch, value)):
            raise self.refuse(key, "a map whose keys are names in sorted order")
        for name, scalar in value.items():
            text = f"{self.what}: {key}: {name} is {_short_repr.repr(scalar)}"
            if type(scalar) not in types:
                raise Problem("malformed", f"{text}; must be {' or '.join(t.__name__ for t in types)}")
            if type(scalar) is float and not math.isfinite(scalar):
                raise Problem("not-finite", f"{text}; must be a finite number")
        return dict(value)
