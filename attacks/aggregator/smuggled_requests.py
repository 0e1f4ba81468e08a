"""Requests that two readers would split differently: two lengths, a length and chunks, chunks in disguise, bare line
feeds, folded lines, a second request in a body.

By: a stranger without a key, behind a proxy.

Must: one refusal each, with a length in it that settles where it ends, or a closed connection; the request inside is
never answered.
"""

from __future__ import annotations

from attacks.live_aggregator import LiveAggregator

INNER_REQUEST = b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n"
HEADS = (
    b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nContent-Length: 37\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 37\r\nTransfer-Encoding: chunked\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding : chunked\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, identity\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +37\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 37, 37\r\n\r\n",
    b"POST / HTTP/1.1\nHost: a\nContent-Length: 0\n\n",
    b"POST / HTTP/1.1\r\nHost: a\r\nX: a\r\n\tContent-Length: 37\r\n\r\n",
)


def attack(target: LiveAggregator) -> None:
    for head in HEADS:
        with target.connect() as connection:
            connection.sendall(head + INNER_REQUEST)
            target.expect_refused(connection, "malformed")
