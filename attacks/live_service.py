"""What attacks on aggregator and gateway share: connections over TLS, what must become of them, and the cost."""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from attacks.cost import Meter
from attacks.honest_silo import HonestSilo, PollTarget
from attacks.programs import NotRefusedError
from tests.integration.service.client import Answer, answer_on

OPENERS = 4
"""Threads that open connections."""

TRICKLE_SECONDS = 0.2
"""Between two bytes of what is sent byte by byte."""


class LiveService(ABC):
    """A process that serves over TLS, beside whose attacker an honest silo polls.

    :cvar name: of the service.
    :ivar answers: what was answered, with how often.
    """

    name: str

    def __init__(self, honest: PollTarget, folder: Path) -> None:
        self.answers: Counter[str] = Counter()
        self._honest = HonestSilo(honest, folder)
        self.honest_polls(time.monotonic())

    def close(self) -> None:
        """End all processes around the attacked service."""
        self._honest.stop()

    # --- Which service it is.

    @property
    @abstractmethod
    def pid(self) -> int:
        """Number of the process that is attacked."""

    @abstractmethod
    def proof(self, method: str, path: str) -> str:
        """A proof of the attacker for a request without a body."""

    @abstractmethod
    def connect(self) -> ssl.SSLSocket:
        """A connection of which nothing but TLS was used."""

    @abstractmethod
    def defects(self) -> str:
        """What the service's log says of defects; "" if it is as it must be."""

    # --- Attacking.

    def head(
        self, method: str, path: str, headers: Mapping[str, str] | None = None, proof: str | None = None
    ) -> bytes:
        """The head of a request, with the attacker's proof unless it brings another; "" sends none."""
        fields = {"Host": self.name, "Authorization": self.proof(method, path) if proof is None else proof}
        lines = [f"{name}: {value}" for name, value in (fields | dict(headers or {})).items() if value]
        return "\r\n".join([f"{method} {path} HTTP/1.1", *lines, "", ""]).encode()

    def exchange(self, data: bytes) -> Answer:
        """Send these bytes over a new connection and read one answer."""
        with self.connect() as connection:
            connection.sendall(data)
            return answer_on(connection)

    @contextmanager
    def connections(self, number: int, begin: bytes | None = None) -> Iterator[list[ssl.SSLSocket]]:
        """So many connections at once, over each of which these bytes were sent. Some may be closed already."""

        def open_connection(_: int) -> ssl.SSLSocket | None:
            with contextlib.suppress(OSError):
                connection = self.connect()
                if begin is not None:
                    connection.sendall(begin)
                return connection
            return None

        with ThreadPoolExecutor(OPENERS) as pool:
            found = [
                connection
                for connection in pool.map(open_connection, range(number))
                if connection is not None
            ]
        self.note("closed", number - len(found))
        try:
            yield found
        finally:
            for connection in found:
                connection.close()

    # --- What must happen.

    def expect(self, code: str, answer: Answer) -> None:
        """The answer refuses with this code.

        :raises NotRefusedError: when it does not.
        """
        if answer.code != code:
            raise NotRefusedError(
                f"answered {answer.status} {answer.code} {answer.body[:200]!r} instead of {code}"
            )
        self.note(f"{answer.status} {code}")

    def expect_refused(self, connection: ssl.SSLSocket, code: str) -> None:
        """The next answer over the connection refuses with this code, or the connection is closed without one."""
        try:
            answer = answer_on(connection)
        except (OSError, http.client.HTTPException):
            self.note("closed")
        else:
            self.expect(code, answer)

    def expect_closed(
        self, connections: Iterable[ssl.SSLSocket], at_least: int, seconds: float = 0.0
    ) -> None:
        """So many of the connections, or of those that could not be opened, are closed within this time.

        The oldest are looked at first; several threads open them, so that one may have come later than its place.

        :raises NotRefusedError: when fewer are.
        """
        end = time.monotonic() + seconds
        for one in connections:
            if self.answers["closed"] >= at_least:
                break
            self.note("closed", is_closed(one, end))
        if self.answers["closed"] < at_least:
            raise NotRefusedError(f"{self.answers['closed']} connections were closed, not {at_least}")

    def note(self, what: str, times: int = 1) -> None:
        """Count an answer of the service by its kind."""
        if times:
            self.answers[what] += times

    # --- What it costs.

    def meter(self) -> Meter:
        """Measures the service from now on."""
        return Meter(self.pid)

    def honest_polls(self, began: float) -> list[float]:
        """Seconds that each poll of the honest silo took that was under way between this time and now."""
        return [poll.seconds for poll in self._honest.polls(began)]


def is_closed(connection: socket.socket, end: float) -> bool:
    """Whether the other side closes a connection until a time; what it sends before is discarded.

    :param end: as `time.monotonic` has it.
    """
    while True:
        connection.settimeout(max(0.001, end - time.monotonic()))
        try:
            if not connection.recv(1 << 16):
                return True
        except (TimeoutError, ssl.SSLWantReadError):
            if time.monotonic() >= end:
                return False
        except OSError:
            return True


def trickle(connections: Sequence[ssl.SSLSocket], seconds: float) -> None:
    """Send a byte over each of the connections again and again; those that are closed do not matter."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for connection in connections:
            with contextlib.suppress(OSError):
                connection.sendall(b"x")
        time.sleep(TRICKLE_SECONDS)
