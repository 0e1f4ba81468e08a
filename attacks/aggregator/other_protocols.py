"""TLS 1.2, plain HTTP on the TLS port, HTTP/2 by ALPN, a certificate of an unknown authority, and a handshake cut in
its middle.

By: a stranger without a key.

Must: the handshake fails, or what follows it is refused as `malformed`.
"""

from __future__ import annotations

import socket
import ssl

from attacks.live_aggregator import LiveAggregator
from attacks.programs import NotRefusedError


def attack(target: LiveAggregator) -> None:
    address = ("127.0.0.1", target.site.port)
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    with socket.create_connection(address) as connection:
        try:
            old.wrap_socket(connection)
        except OSError:
            target.note("closed")
        else:
            raise NotRefusedError("TLS 1.2 was accepted")
    with socket.create_connection(address) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        if b"HTTP" in connection.recv(4096):
            raise NotRefusedError("answered without TLS")
        target.note("closed")
    newer = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    newer.check_hostname, newer.verify_mode = False, ssl.CERT_NONE
    newer.set_alpn_protocols(["h2"])
    with newer.wrap_socket(socket.create_connection(address)) as connection:
        connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        target.expect_refused(connection, "malformed")
