"""A dataset function that looks through its own process, as code of a job could, for what is not its own."""

from __future__ import annotations

import ctypes
import json
import os
import time
from pathlib import Path

import numpy as np

MASK = 0x5A
CHUNK_BYTES = 1 << 22


def masked_secret(secret: bytes) -> str:
    """A secret as it is given to the function, so that the message that gives it is not itself a find."""
    return bytes(byte ^ MASK for byte in secret).hex()


def search(question: str) -> tuple[np.ndarray, np.ndarray]:
    """Say in an error which secrets of the question lie in this process's memory, and what else it has.

    :param question: a file that appears when the run has made its keys: name -> masked secret.
    """
    until = time.monotonic() + 100
    while not Path(question).exists():
        assert time.monotonic() < until
        time.sleep(0.05)
    planted = bytearray(os.urandom(32))
    needles = {"planted": bytearray(planted)}
    for name, text in json.loads(Path(question).read_text()).items():
        needles[name] = bytearray.fromhex(text)
        for place in range(len(needles[name])):
            needles[name][place] ^= MASK
    found = {
        "memory": sorted(_found_needles(needles)),
        "descriptors": sorted(_descriptors()),
        "environment": sorted(
            entry.partition("=")[0] for entry in Path("/proc/self/environ").read_text().split("\0") if entry
        ),
        "maps": sorted({line.split()[5] for line in _maps() if len(line.split()) > 5 and ".so" not in line}),
    }
    raise ValueError(json.dumps(found))


def _found_needles(needles: dict[str, bytearray]) -> set[str]:
    """Names of the needles that lie somewhere else than in the needles themselves."""
    buffer = bytearray(CHUNK_BYTES + 4096)
    own = [_place(needle) for needle in needles.values()] + [_place(buffer)]
    found = set()
    with Path("/proc/self/mem").open("rb", buffering=0) as memory:
        for line in _maps():
            first, last = (int(edge, 16) for edge in line.split()[0].split("-"))
            if line.split()[1][0] != "r" or "[v" in line:
                continue
            for start in range(first, last, CHUNK_BYTES):
                view = memoryview(buffer)[: min(CHUNK_BYTES + 4096, last - start)]
                try:
                    length = os.preadv(memory.fileno(), [view], start)
                except OSError:  # unmapped meanwhile
                    continue
                finally:
                    view.release()
                for name, needle in needles.items():
                    at = buffer.find(needle, 0, length)
                    while at >= 0:
                        if not any(begin <= start + at < end for begin, end in own):
                            found.add(name)
                        at = buffer.find(needle, at + 1, length)
    return found


def _place(array: bytearray) -> tuple[int, int]:
    begin = ctypes.addressof(ctypes.c_char.from_buffer(array))
    return begin, begin + len(array)


def _maps() -> list[str]:
    return Path("/proc/self/maps").read_text().splitlines()


def _descriptors() -> list[str]:
    found = []
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208
        try:
            found.append(f"{name} {Path('/proc/self/fd', name).readlink()}")
        except FileNotFoundError:  # the listing's own
            continue
    return found
