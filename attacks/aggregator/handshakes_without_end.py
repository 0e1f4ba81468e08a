"""Complete TLS handshakes, one after the other on four connections at a time, each closed at once.

By: a stranger without a key.

Must: nothing remains of them, and honest silos are answered in between.
"""

from __future__ import annotations

from attacks.live_aggregator import LiveAggregator


def attack(target: LiveAggregator) -> None:
    with target.connections(40) as opened:
        target.note("handshake", len(opened))
