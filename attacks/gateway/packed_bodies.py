"""Reports, offers and updates of some kilobytes that unpack to megabytes.

By: a silo with its own key.

Must: refused as `unsupported`; nothing is unpacked for the aggregator.
"""

from __future__ import annotations

import gzip
import time

from attacks.live_gateway import LiveGateway

PACKED_BODY = gzip.compress(bytes(32 << 20))


def attack(target: LiveGateway) -> None:
    headers = {"Content-Encoding": "gzip"}
    for method, path in (
        ("PUT", f"{target.silo_path()}/offer"),
        ("PUT", f"{target.silo_path()}/agents/attacked-north/status"),
        ("PATCH", target.update),
    ):
        target.expect("unsupported", target.ask(method, path, PACKED_BODY, headers=headers))
    time.sleep(0.1)
