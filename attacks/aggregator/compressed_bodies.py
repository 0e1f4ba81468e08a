"""Bodies of 64 KB that unpack to 64 MB: of a report by a stranger, of a report and of an update by a silo.

By: a stranger without a key, and a silo with its own.

Must: refused as `too-long` or `malformed`; the memory for what they unpack to is never needed.
"""

from __future__ import annotations

import zlib

from attacks.live_aggregator import LiveAggregator
from attacks.programs import NotRefusedError

ZEROS = bytes(64 << 20)
DEFLATE_HEADERS = {"Content-Encoding": "deflate"}


def attack(target: LiveAggregator) -> None:
    silo, packed = target.silo, zlib.compress(ZEROS)
    path = f"{target.base}/failures/{target.task}"
    target.expect("too-long", silo.request("POST", path, DEFLATE_HEADERS, packed, "Fedsilo A"))
    target.expect(
        "too-long", silo.request("POST", path, DEFLATE_HEADERS, packed, silo.proof("POST", path, packed))
    )
    update = zlib.compress(target.update() + ZEROS)
    fields = {"Upload-Offset": "0", "Upload-Length": str(80 << 20), "Upload-Digest": "0" * 64}
    answer = silo.request("PATCH", f"{target.base}/updates/{target.task}", fields | DEFLATE_HEADERS, update)
    if answer.code not in ("too-long", "malformed", "unsupported"):
        raise NotRefusedError(f"answered {answer.status} {answer.code}")
    target.note(f"{answer.status} {answer.code}")
