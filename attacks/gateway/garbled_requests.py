"""What is no request: random bytes, a head without end, other protocols, a length that is none, a line of 9 KB.

By: a stranger without a key.

Must: refused as `malformed` or `too-long`, and the connection is closed.
"""

from __future__ import annotations

from attacks.live_gateway import LiveGateway
from attacks.programs import NotRefusedError
from tests.integration.service.client import answer_on

GARBLED_REQUESTS = (
    b"\x00\xff" * 50 + b"\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"GET / HTTP/1.1\r\nContent-Length: many\r\n\r\n",
    b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\n\r\n",
    b"GET / HTTP/1.1\r\nA: " + b"a" * 9000 + b"\r\n\r\n",
)


def attack(target: LiveGateway) -> None:
    for garbled in GARBLED_REQUESTS:
        with target.connect() as connection:
            connection.sendall(garbled)
            answer = answer_on(connection)
        if answer.code not in ("malformed", "too-long"):
            raise NotRefusedError(f"answered {answer.status} to {garbled[:20]!r}")
        target.note(f"{answer.status} {answer.code}")
