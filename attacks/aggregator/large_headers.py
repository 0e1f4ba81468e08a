"""A header of 9 KB, a request line of 9 KB, 200 headers, and headers of 8 KB each, as many as are taken.

By: a stranger without a key.

Must: refused as `too-long` or `malformed`, or the connection is closed.
"""

from __future__ import annotations

from attacks.live_aggregator import LiveAggregator

HEAD = b"GET / HTTP/1.1\r\nHost: a\r\n"


def attack(target: LiveAggregator) -> None:
    target.expect("too-long", target.exchange(HEAD + b"Authorization: " + b"A" * 9000 + b"\r\n\r\n"))
    target.expect("too-long", target.exchange(b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\nHost: a\r\n\r\n"))
    many = b"".join(b"X-%d: a\r\n" % number for number in range(200))
    target.expect("malformed", target.exchange(HEAD + many + b"\r\n"))
    large = b"".join(b"X-%d: %s\r\n" % (number, b"A" * 8000) for number in range(200))
    with target.connect() as connection:
        connection.sendall(HEAD + large + b"\r\n")
        target.expect_refused(connection, "malformed")
