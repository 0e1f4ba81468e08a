"""Upload headers that are negative, hexadecimal, empty, of 40 digits or no digest; offsets beyond what was sent; less
and more bytes than were announced; 10^18 bytes.

By: a silo of the job with its own key.

Must: refused as `malformed`, `offset-mismatch` or `too-long`; the task's upload stays at offset 0.
"""

from __future__ import annotations

from attacks.live_aggregator import LiveAggregator
from tests.updates import digest_of


def attack(target: LiveAggregator) -> None:
    task, silo = target.task, target.silo
    for header in ("Upload_Offset", "Upload_Length", "Upload_Digest"):
        for value in ("", "-1", "1e3", "0x10", "9" * 40, "A" * 64, "+1"):
            target.expect("malformed", silo.patch(task, b"x", 0, **{header: value}))
    update = target.update()
    for offset in (1, 50, len(update), 10**17):
        target.expect("offset-mismatch", silo.patch(task, update, Upload_Offset=str(offset)))
    target.expect("too-long", silo.patch(task, update, Upload_Length=str(len(update) - 1)))
    target.expect("too-long", silo.patch(task, update + bytes(1000), Upload_Length=str(10**18 - 1)))
    upper = digest_of(update).upper()
    target.expect("malformed", silo.patch(task, update, Upload_Digest=upper))
    target.expect_nothing_kept()
