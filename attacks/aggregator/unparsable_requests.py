"""What is no HTTP request: bytes of TLS, odd request lines, spaces before colons, versions that do not exist, a body of
negative length.

By: a stranger without a key.

Must: each is refused as `malformed` with a problem document and one line of log, and its connection is closed.
"""

from __future__ import annotations

from attacks.live_aggregator import LiveAggregator

REQUESTS = (
    b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n",
    b"GET / SPDY/9\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost : a\r\n\r\n",
    b"GET / HTTP/1.1\r\n Host: a\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1e3\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\nX: \x00\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"\r\n" * 100 + b"nonsense\r\n\r\n",
)


def attack(target: LiveAggregator) -> None:
    for data in REQUESTS:
        target.expect("malformed", target.exchange(data))
