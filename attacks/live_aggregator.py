"""The aggregator that is attacked: the real process of a running job, its two silos, and what was answered."""

from __future__ import annotations

import contextlib
import http.client
import ssl
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from attacks.cost import Meter
from attacks.honest_silo import Asked, HonestSilo
from attacks.programs import NotRefused
from tests.integration.service.client import Answer, FetchedTask, SiloClient, answer_on
from tests.integration.service.site import Process, Site, federation

HIDDEN = (512, 1024)
"""A model of 2 MB: an update has more than one of the pieces in which it is written."""

ROUNDS = 2000
"""More than are ever played."""

OPENERS = 4
"""Threads that open connections."""

REPORT = b'{"reason": "Slow", "message": ""}'


class LiveAggregator:
    """What a program attacks.

    :ivar silo: the attacker, where it is a silo: a client with that silo's own key.
    :ivar other: the other silo of the job.
    :ivar answers: what was answered, with how often.
    :ivar health: seconds that `/healthz` took, where a program asks for it.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.site = Site(folder / "job", federation(rounds=ROUNDS, hidden=HIDDEN))
        self.process: Process = self.site.aggregator()
        self.silo, self.other = (SiloClient(self.site, silo) for silo in self.site.silos)
        self.answers: Counter[str] = Counter()
        self.health: list[float] = []
        self._given: FetchedTask | None = None
        ca = self.site.agent("south")["spec"]["trust"]["caCertificate"]
        path, key = f"{self.other.base}/task?after=&wait=0", self.other.key
        asked = Asked(self.site.port, ca, self.site.uid, self.other.silo, key, path)
        self._honest = HonestSilo(asked, folder)
        self.honest_polls(time.monotonic())

    def close(self) -> None:
        """End all processes."""
        self._honest.stop()
        self.process.kill()

    # --- What the attacker knows.

    @property
    def base(self) -> str:
        """Path of the job."""
        return self.silo.base

    @property
    def ask(self) -> str:
        """Path of a request for the next task."""
        return f"{self.base}/task?after=&wait=0"

    @property
    def task(self) -> str:
        """The attacker's open task."""
        return self.given.task.task

    @property
    def given(self) -> FetchedTask:
        """The attacker's open task with its model, as the aggregator gave it."""
        if self._given is None or self.silo.sealed() != self._given.sealed:
            self._given = self.silo.given()
        return self._given

    def update(self) -> bytes:
        """An honest update for the attacker's task, of which the aggregator has nothing."""
        self.forget_upload()
        return self.silo.update(self.given)

    def forget_upload(self) -> None:
        """Make the aggregator drop what it has of an upload: nothing that follows depends on what was before."""
        # An upload closes the connections of those before, and has its turn when these are over.
        self.silo.patch(self.task, b"", Upload_Offset=str(10**17))
        if kept := self.kept():
            self.silo.patch(self.task, bytes(kept + 9), kept, Upload_Length=str(kept))
        if self.kept():
            raise NotRefused(f"{self.kept()} bytes of an upload stayed that was refused")

    def kept(self) -> int:
        """Bytes that the aggregator has of the attacker's upload."""
        return int(self.silo.head(self.task).headers["Upload-Offset"])

    def expect_nothing_kept(self) -> None:
        """Nothing half-written stayed.

        :raises NotRefused: when something did.
        """
        if kept := self.kept():
            raise NotRefused(f"{kept} bytes of an upload stayed that was refused")

    def play_round(self) -> None:
        """Both silos answer, so that the next round opens."""
        self.forget_upload()
        before = self.task
        self.silo.answer(self.given)
        self.other.answer(self.other.given())
        self.silo.task(before)

    # --- Attacking.

    def request_head(
        self, method: str, path: str, headers: Mapping[str, str] | None = None, proof: str | None = None
    ) -> bytes:
        """The head of a request, with the attacker's proof unless it brings another; "" sends none."""
        fields = {"Host": "aggregator", "Authorization": self.silo.proof(method, path)}
        if proof is not None:
            fields["Authorization"] = proof
        fields = {name: value for name, value in (fields | dict(headers or {})).items() if value}
        lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items())]
        return "\r\n".join([*lines, "", ""]).encode()

    def connect(self) -> ssl.SSLSocket:
        """A connection of which nothing but TLS was used."""
        return self.silo.socket()

    @contextmanager
    def connections(self, number: int, begin: bytes | None = None) -> Iterator[list[ssl.SSLSocket]]:
        """So many connections at once, over each of which these bytes were sent. Some may be closed already."""

        def opened(_: int) -> ssl.SSLSocket | None:
            with contextlib.suppress(OSError):
                connection = self.connect()
                if begin is not None:
                    connection.sendall(begin)
                return connection
            return None

        with ThreadPoolExecutor(OPENERS) as pool:
            found = [connection for connection in pool.map(opened, range(number)) if connection is not None]
        self.note("closed", number - len(found))
        try:
            yield found
        finally:
            for connection in found:
                connection.close()

    def exchange(self, data: bytes) -> Answer:
        """Send these bytes over a new connection and read one answer."""
        with self.connect() as connection:
            connection.sendall(data)
            return answer_on(connection)

    def is_closed(self, connection: ssl.SSLSocket, seconds: float = 0.0) -> bool:
        """Whether the aggregator closes a connection within this time; what it sends before is discarded."""
        end = time.monotonic() + seconds
        while True:
            connection.settimeout(max(0.0, end - time.monotonic()) or 0.001)
            try:
                if not connection.recv(1 << 16):
                    return True
            except (TimeoutError, ssl.SSLWantReadError):
                if time.monotonic() >= end:
                    return False
            except OSError:
                return True

    # --- What must happen.

    def expect(self, code: str, answer: Answer) -> None:
        """The answer refuses with this code.

        :raises NotRefused: when it does not.
        """
        if answer.code != code:
            raise NotRefused(
                f"answered {answer.status} {answer.code} {answer.body[:200]!r} instead of {code}"
            )
        self.note(f"{answer.status} {code}")

    def expect_closed(
        self, connections: Iterable[ssl.SSLSocket], at_least: int, seconds: float = 0.0
    ) -> None:
        """So many of the connections, or of those that could not be opened, were closed.

        :raises NotRefused: when fewer were.
        """
        end = time.monotonic() + seconds
        closed = sum(self.is_closed(one, max(0.0, end - time.monotonic())) for one in connections)
        self.note("closed", closed)
        if self.answers["closed"] < at_least:
            raise NotRefused(f"{self.answers['closed']} connections were closed, not {at_least}")

    def expect_refused(self, connection: ssl.SSLSocket, code: str) -> None:
        """The next answer over the connection refuses with this code, or the connection is closed without one."""
        try:
            answer = answer_on(connection)
        except (OSError, http.client.HTTPException):
            self.note("closed")
        else:
            self.expect(code, answer)

    def note(self, what: str, times: int = 1) -> None:
        """Count an answer."""
        if times:
            self.answers[what] += times

    # --- What it costs.

    def meter(self) -> Meter:
        """Measures the aggregator from now on."""
        return Meter(self.process.pid)

    def honest_polls(self, began: float) -> list[float]:
        """Seconds that each poll of the honest silo took that was under way between this time and now."""
        return [poll.seconds for poll in self._honest.polls(began)]

    def defects(self) -> str:
        """What the aggregator's log says of defects; "" if it is as it must be."""
        if not self.process.running:
            return "the aggregator has ended"
        return "a traceback in the aggregator's log" if "Traceback" in self.site.log() else ""
