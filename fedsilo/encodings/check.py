"""Whether what was received can be decoded, before anything counts on it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod
from pathlib import Path

import numpy as np

from fedsilo.encodings.encoding import SentParts
from fedsilo.encodings.registry import encoding_in
from fedsilo.wire import DTYPES, Contract, UpdateReader, open_update


def require_decodable(
    contract: Contract, read: Callable[[str, int, int], np.ndarray], size: Callable[[str], int]
) -> None:
    """Return if finite numbers come of every encoded tensor, and of what a transform has sent.

    :param read: elements of a block, which the contract allows: its name, the first element, how many.
    :param size: how many elements a block has.
    :raises Problem: `not-finite` or `malformed`, naming the block.
    """
    if contract.decodable is not None:
        contract.decodable(lambda name: read(name, 0, size(name)))
    encoding = encoding_in(contract)
    if encoding is None:
        return
    for encoded in contract.encoded:
        sizes = tuple(size(name) for name in encoded.parts)
        encoding.check(encoded.tensor.spec, SentParts(partial(_read_part, read, encoded.parts), sizes))


def require_decodable_update(contract: Contract, path: Path) -> None:
    """Return if what an update's file encodes, or a transform has sent, gives finite numbers; the file keeps the
    contract.

    :raises Problem: `not-finite` or `malformed`, naming the block.
    """
    if contract.encoded or contract.decodable is not None:
        with open_update(path) as update:
            require_decodable(
                contract, partial(_read_block, update), lambda name: prod(update.entry(name).shape)
            )


def _read_part(
    read: Callable[[str, int, int], np.ndarray], names: tuple[str, ...], part: int, first: int, count: int
) -> np.ndarray:
    return read(names[part], first, count)


def _read_block(update: UpdateReader, name: str, first: int, count: int) -> np.ndarray:
    entry = update.entry(name)
    buffer = np.empty(count, DTYPES[entry.dtype])
    update.read(entry, first, buffer)
    return buffer
