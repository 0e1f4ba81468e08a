"""600 connections that finish their TLS handshake and say nothing.

By: a stranger without a key.

Must: of those without a proof only a fixed number is kept, and the oldest are closed at once for the newer ones.
"""

from __future__ import annotations

from attacks.live_aggregator import LiveAggregator
from fedsilo.http.listener import MAX_UNPROVEN

NUMBER = 600


def attack(target: LiveAggregator) -> None:
    with target.connections(NUMBER) as opened:
        target.expect_closed(opened, NUMBER - MAX_UNPROVEN, seconds=5)
