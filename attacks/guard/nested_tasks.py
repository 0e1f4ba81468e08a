"""Tasks of 1 MiB, rightly signed, that are lists, maps and texts in one another, as costly to decode as they can be.

By: a hostile aggregator with the job's task key.

Must: refused as `malformed` or `too-long` before anything is decoded of which an element is missing.
"""

from __future__ import annotations

from attacks.live_guard import LiveGuard
from fedsilo.wire.envelope import SIGNATURE_HEAD
from fedsilo.wire.fields import pack
from fedsilo.wire.keys import TASK

RUNS_ONCE = True
ROOM = (1 << 20) - 5 - 66


def attack(target: LiveGuard) -> None:
    for begin, piece in (
        (b"\x81\xa1a", b"\xdc\xff\xff"),
        (b"\x81\xa1a", b"\x91"),
        (b"\x81\xa1a\xdc\xff\xff", b"\x90"),
        (b"", b"\x81"),
        (b"", b"\x00"),
    ):
        header = begin + piece * ((ROOM - len(begin)) // len(piece))
        sealed = pack(header) + SIGNATURE_HEAD + target.aggregator.key.sign(TASK, header)
        target.expect_untrusted("malformed", sealed)
