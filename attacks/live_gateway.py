"""The gateway that is attacked: a real process, two silos, of which one attacks, and an aggregator that answers."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import ssl
import threading
import time
from pathlib import Path
from typing import Any

from typing_extensions import override

from attacks.honest_silo import PollTarget
from attacks.live_service import LiveService
from attacks.programs import NotRefusedError
from fedsilo.wire import SigningKey, issue_server, make_authority, sign_request
from tests.integration.gateway.process import GatewayProcess, accepted_silo, silo_agent
from tests.integration.service.client import Answer

JOB = "attacked"
ATTACKER, HONEST_SILO = "silo-north/north", "silo-south/south"
BODY_BYTES = 2 << 20

PAUSE_SECONDS = 0.1
"""Between two polls of the honest silo, which keeps to its rate of requests."""


class Aggregator:
    """Answers a GET with a body of 2 MiB, takes what a PATCH brings, and knows nothing else."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        authority = make_authority()
        certificate, key = issue_server(authority, ["127.0.0.1"])
        (folder / "server.crt").write_bytes(certificate)
        (folder / "server.key").write_bytes(key)
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._tls.load_cert_chain(folder / "server.crt", folder / "server.key")
        self.ca = authority.cert_pem.decode()
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.url = f"https://127.0.0.1:{self._listening.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Stop listening, so that no further connection is accepted."""
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                accepted, _ = self._listening.accept()
                threading.Thread(target=self._serve, args=[accepted], daemon=True).start()

    def _serve(self, accepted: socket.socket) -> None:
        with (
            contextlib.suppress(OSError),
            self._tls.wrap_socket(accepted, server_side=True) as connection,
            connection.makefile("rb") as stream,
        ):
            while request := stream.readline().split():
                headers = http.client.parse_headers(stream)
                left = int(headers.get("Content-Length", 0))
                while left and (part := stream.read(min(left, 1 << 16))):
                    left -= len(part)
                head, body = "204 No Content\r\n", b""
                if request[0] == b"GET":
                    head, body = f"200 OK\r\nContent-Length: {BODY_BYTES}\r\n", bytes(BODY_BYTES)
                connection.sendall(f"HTTP/1.1 {head}\r\n".encode() + body)


class LiveGateway(LiveService):
    """What a program attacks."""

    name = "gateway"

    def __init__(self, folder: Path) -> None:
        self.aggregator = Aggregator(folder / "aggregator")
        self.keys = {silo: SigningKey.generate() for silo in (ATTACKER, HONEST_SILO)}
        objects = [accepted_silo(silo, key) for silo, key in self.keys.items()]
        for silo, key in self.keys.items():
            objects.append(silo_agent(silo, key, JOB, self.aggregator.url, self.aggregator.ca))
        self.process = GatewayProcess(folder / "gateway", objects, {})
        self._tls = ssl.create_default_context(cadata=self.process.ca)
        path = f"{self.silo_path(HONEST_SILO)}/agents?after=&wait=0"
        asked = PollTarget(
            self.process.port,
            self.process.ca,
            self.process.hub,
            HONEST_SILO,
            self.keys[HONEST_SILO],
            path,
            PAUSE_SECONDS,
        )
        super().__init__(asked, folder)

    @override
    def close(self) -> None:
        super().close()
        self.process.stop()
        self.aggregator.close()

    # --- What the attacker knows.

    def silo_path(self, silo: str = ATTACKER) -> str:
        """Path of what a silo asks the hub."""
        return f"/v1/silos/{silo}"

    @property
    def blob(self) -> str:
        """Path of a body that the aggregator has."""
        return f"/v1/jobs/{JOB}/blobs/{'ab' * 32}"

    @property
    def update(self) -> str:
        """Path to which a silo uploads."""
        return f"/v1/jobs/{JOB}/updates/t"

    @override
    def proof(self, method: str, path: str, body: bytes | None = None, **given: Any) -> str:
        """A proof of the attacker, unless other things are given."""
        asked = {"job": JOB if path.startswith("/v1/jobs/") else self.process.hub, "sender": ATTACKER}
        key = given.pop("key", self.keys[ATTACKER])
        return sign_request(
            key, method=method, path=path, body=body, **(asked | {"now": time.time()} | given)
        )

    @property
    @override
    def pid(self) -> int:
        return self.process.process.pid

    @override
    def connect(self) -> ssl.SSLSocket:
        made = socket.create_connection(("127.0.0.1", self.process.port), timeout=30)
        return self._tls.wrap_socket(made, server_hostname="127.0.0.1")

    # --- Attacking.

    def ask(self, method: str, path: str, body: bytes | None = None, **given: Any) -> Answer:
        """One request of the attacker over a connection of its own."""
        headers = dict(given.pop("headers", {}))
        proof = given.pop("proof", None)
        proof = self.proof(method, path, body, **given) if proof is None else proof
        if body is not None:
            headers["Content-Length"] = str(len(body))
        return self.exchange(self.head(method, path, headers, proof) + (body or b""))

    def put(self, path: str, content: Any) -> Answer:
        """A document of the attacker."""
        return self.ask("PUT", path, content if isinstance(content, bytes) else json.dumps(content).encode())

    # --- What it costs.

    def transfer_honestly(self) -> None:
        """A download and an upload of the attacker while it is honest."""
        download = self.ask("GET", self.blob)
        if len(download.body) != BODY_BYTES:
            raise NotRefusedError(
                f"an honest download is answered {download.status}: {download.body[:200]!r}"
            )
        headers = {"Content-Length": str(BODY_BYTES)}
        if self.exchange(self.head("PATCH", self.update, headers) + bytes(BODY_BYTES)).status != 204:
            raise NotRefusedError("an honest upload is refused")
        time.sleep(PAUSE_SECONDS)

    @override
    def defects(self) -> str:
        if self.process.process.poll() is not None:
            return "the gateway has ended"
        return "a traceback in the gateway's log" if "Traceback" in self.process.log.read_text() else ""
