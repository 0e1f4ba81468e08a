"""Seeds for every purpose, derived from the job's one seed.

Two purposes never share a stream of random numbers, and nothing depends on time, uid or the order of calls: a
round that is computed again after a restart draws the same numbers.
"""

from __future__ import annotations

import hashlib
import json


def derive_seed(job_seed: int, *purpose: str | int) -> int:
    """Seed of 63 bits for one purpose, for example `derive_seed(1, "shuffle", "silo-north/north", 7)`.

    The parts are written as a JSON array, which tells ("ab", "c") from ("a", "bc") and 1 from "1", and
    hashed with SHA-256; the seed is the digest's first 8 bytes, big-endian, shifted right by one, so that it
    fits every signed 64-bit seed. The same on every platform.
    """
    text = json.dumps([job_seed, *purpose], ensure_ascii=True, separators=(",", ":"))
    return int.from_bytes(hashlib.sha256(text.encode("ascii")).digest()[:8], "big") >> 1
