"""Noise from a cipher: normal numbers, the same of the same key, to the far ends of the distribution."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import pytest
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from fedsilo.learning.noise import ANGLE_BITS, KEY_BYTES, PAIRS, NoiseSource

KEY = bytes(range(KEY_BYTES))


def noise_numbers(count: int, deviation: float = 1.0, key: bytes = KEY) -> np.ndarray:
    return torch.cat([piece.clone() for piece in NoiseSource(key, deviation).pieces(count)]).numpy()


NUMBERS = noise_numbers(1 << 21)


def test_a_pair_is_what_box_and_muller_make_of_the_ciphers_bits() -> None:
    cipher = Cipher(algorithms.AES(KEY), modes.CTR(bytes(16))).encryptor()
    bits = cipher.update(bytes(12 * PAIRS))
    for place in (0, 1, 17, PAIRS - 1):
        word = int.from_bytes(bits[8 * place : 8 * place + 8], "little")
        start = 8 * PAIRS + 4 * place
        turn = int.from_bytes(bits[start : start + 4], "little", signed=True)
        length = math.sqrt(-2 * math.log(1 - (word >> ANGLE_BITS) * 2.0**-52))
        step = math.pi / 2**ANGLE_BITS
        angle = 2 * step * (word % 2**ANGLE_BITS) + step * turn / 2**31
        expected = length * np.array([math.cos(angle), math.sin(angle)])
        assert NUMBERS[2 * place : 2 * place + 2] == pytest.approx(expected, abs=4e-7 * length)


def test_numbers_are_normally_distributed() -> None:
    ordered, n = np.sort(NUMBERS), len(NUMBERS)
    for share in (1e-5, 1e-3, 0.1, 0.3, 0.5, 0.8, 0.99, 0.9999, 1 - 1e-5):
        below = np.searchsorted(ordered, NormalDist().inv_cdf(share)) / n
        assert abs(below - share) < 5 * math.sqrt(share * (1 - share) / n)
    assert abs(NUMBERS.mean()) < 5 / math.sqrt(n)
    assert abs((NUMBERS**2).mean() - 1) < 5 * math.sqrt(2 / n)


def test_numbers_tell_nothing_of_others() -> None:
    assert len(np.unique(NUMBERS)) == len(NUMBERS)
    squares = NUMBERS**2 - 1
    for lag in (1, 2, 3, 2 * PAIRS):
        for rows in (NUMBERS, squares / math.sqrt(2)):
            products = rows[lag:] * rows[:-lag]
            assert abs(products.mean()) < 6 / math.sqrt(len(products))


def test_directions_are_all_alike() -> None:
    """Also within a step of the table, where a small angle turns them."""
    angles = np.arctan2(NUMBERS[1::2], NUMBERS[::2]) / (2 * math.pi) % 1
    for parts in (8, 16 * 2**ANGLE_BITS):
        within = np.histogram(angles * parts % 1, bins=16, range=(0, 1))[0]
        expected = len(angles) / 16
        assert np.abs(within - expected).max() < 5 * math.sqrt(expected)


def test_the_same_key_gives_the_same_numbers_in_whatever_pieces() -> None:
    source = NoiseSource(KEY, 0.5)
    found = [piece.clone() for count in (1, 700, 2 * PAIRS, 5, 3 * PAIRS) for piece in source.pieces(count)]
    together = torch.cat(found).numpy()
    assert together.tobytes() == noise_numbers(len(together), 0.5).tobytes()
    assert not np.array_equal(together, noise_numbers(len(together), 0.5, bytes(KEY_BYTES)))
    assert together == pytest.approx(noise_numbers(len(together)) / 2)


def test_the_extreme_words_of_a_cipher_give_finite_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A word of zeros is the centre; one of ones is the farthest that there is."""
    for byte, length in ((0, 0.0), (255, math.sqrt(2 * 52 * math.log(2)))):
        source = NoiseSource(KEY, 1.0)
        monkeypatch.setattr(source, "_cipher", _Constant(byte))
        (piece,) = source.pieces(2 * PAIRS)
        assert torch.hypot(piece[::2], piece[1::2]).numpy() == pytest.approx(length, rel=1e-6)


class _Constant:
    """A cipher that writes one byte only."""

    def __init__(self, byte: int) -> None:
        self._byte = byte

    def update_into(self, data: bytes, room: bytearray) -> None:
        room[: len(data)] = bytes([self._byte]) * len(data)
