"""Normally distributed numbers for noise, that nobody who sees some of them can tell others from.

Box and Muller, "A Note on the Generation of Random Normal Deviates", 1958, in double precision, with random bits of
AES in counter mode: half the time of NumPy's numbers, whose PCG64 is no cipher.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from torch import Tensor

KEY_BYTES = 32
"""Bytes of a source's key."""

PAIRS = 1 << 15
"""Pairs of numbers that are drawn at once: so few that they stay near the processor, so many that calls cost little."""

ANGLE_BITS = 12
"""Bits of a table's angle; the 52 others of a word make a number in double precision."""


class NoiseSource:
    """Independent numbers of the normal distribution with mean zero, the same of the same key.

    A pair is a complex number. Its length is sqrt(-2 ln u), with u uniform in (0, 1]; its direction is one from a
    table, turned by a small angle. Uniform is the tangent of that rather than the angle, which changes the density by
    a share of less than 1e-6 r^2, where r is the length over the deviation.

    :param key: secret, of `KEY_BYTES`, and used once.
    :param deviation: standard deviation of each number.
    """

    def __init__(self, key: bytes, deviation: float) -> None:
        self._cipher = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()
        angles = np.arange(1 << ANGLE_BITS) * (2 * np.pi / (1 << ANGLE_BITS))
        self._directions = math.sqrt(2) * deviation * np.exp(1j * angles)
        self._zeros = bytes(12 * PAIRS)
        # A cipher asks for room for one more block than it writes, less a byte.
        self._bits = bytearray(len(self._zeros) + 15)
        self._words = np.frombuffer(self._bits, np.uint64, PAIRS)
        self._turn_words = np.frombuffer(self._bits, np.int32, PAIRS, offset=8 * PAIRS)
        self._places = np.empty(PAIRS, np.int64)
        # One in the memory of the other, so that less of it has to stay near the processor.
        self._lengths = torch.from_numpy(self._words.view(np.float64))
        self._turns = torch.from_numpy(self._places.view(np.float64))
        self._turned, self._pairs = torch.empty(2, PAIRS, dtype=torch.complex128)
        self._left = self._lengths[:0]

    def pieces(self, count: int) -> Iterator[Tensor]:
        """So many numbers in double precision, in pieces; each may be written to, until the next is asked for."""
        while count:
            if not self._left.numel():
                self._draw()
                self._left = torch.view_as_real(self._pairs).view(-1)
            piece, self._left = self._left[:count], self._left[count:]
            yield piece
            count -= piece.numel()

    def _draw(self) -> None:
        """Fill the pairs with new ones, in the memory of those before."""
        self._cipher.update_into(self._zeros, self._bits)
        words, lengths = self._words, self._lengths.numpy()
        np.bitwise_and(words.view(np.int64), (1 << ANGLE_BITS) - 1, out=self._places)
        self._directions.take(self._places, out=self._pairs.numpy(), mode="wrap")
        np.multiply(self._turn_words, math.pi / (1 << ANGLE_BITS) * 2.0**-31, out=self._turns.numpy())
        # As a float's digits behind its point, with the exponent of 1, the other bits are a number in [1, 2).
        np.right_shift(words, ANGLE_BITS, out=words)
        np.bitwise_or(words, _EXPONENT_OF_ONE, out=words)
        np.subtract(2.0, lengths, out=lengths)
        # NumPy's logarithm takes more than twice as long, and so does PyTorch's square root.
        self._lengths.log_()
        np.sqrt(np.abs(lengths, out=lengths), out=lengths)
        torch.complex(self._lengths, self._turns.mul_(self._lengths), out=self._turned)
        self._pairs.mul_(self._turned)


_EXPONENT_OF_ONE = np.uint64(0x3FF << 52)
