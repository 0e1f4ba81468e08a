"""An `Expect` header of `100-continue` before a refused body, unknown expectations, and upgrades to WebSocket, HTTP/2
and TLS.

By: a stranger without a key.

Must: refused like any other request; no protocol is changed.
"""

from __future__ import annotations

from attacks.live_aggregator import LiveAggregator


def attack(target: LiveAggregator) -> None:
    path = f"{target.base}/updates/r00001-train-north"
    for headers in (
        {"Expect": "100-continue", "Content-Length": "1000000000"},
        {"Expect": "cookies"},
        {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA=="},
        {
            "Connection": "Upgrade, HTTP2-Settings",
            "Upgrade": "h2c",
            "HTTP2-Settings": "AAMAAABkAARAAAAAAAIAAAAA",
        },
        {"Connection": "Upgrade", "Upgrade": "TLS/1.0"},
    ):
        target.expect("malformed", target.exchange(target.head("PATCH", path, headers, "Fedsilo A")))
