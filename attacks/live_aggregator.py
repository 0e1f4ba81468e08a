"""The aggregator that is attacked: the real process of a running job, its two silos, and what was answered."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from pathlib import Path

from typing_extensions import override

from attacks.honest_silo import PollTarget
from attacks.live_service import LiveService
from attacks.programs import NotRefusedError
from tests.integration.service.client import FetchedTask, SiloClient
from tests.integration.service.site import Process, Site, federation

HIDDEN_SIZES = (512, 1024)
"""A model of 2 MB: an update has more than one of the pieces in which it is written."""

ROUNDS = 2000
"""More than are ever played."""

REPORT = b'{"reason": "Slow", "message": ""}'


class LiveAggregator(LiveService):
    """What a program attacks.

    :param before: a command that runs the aggregator.
    :ivar silo: the attacker, where it is a silo: a client with that silo's own key.
    :ivar other: the other silo of the job.
    :ivar health: seconds that `/healthz` took, where a program asks for it.
    """

    name = "aggregator"

    def __init__(self, folder: Path, before: Sequence[str] = ()) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.site = Site(folder / "job", federation(rounds=ROUNDS, hidden=HIDDEN_SIZES))
        self.process: Process = self.site.aggregator(before=before)
        self.silo, self.other = (SiloClient(self.site, silo) for silo in self.site.silos)
        self.health: list[float] = []
        self._given: FetchedTask | None = None
        ca = self.site.agent("south")["spec"]["trust"]["caCertificate"]
        path, key = f"{self.other.base}/task?after=&wait=0", self.other.key
        asked = PollTarget(self.site.port, ca, self.site.uid, self.other.silo, key, path)
        super().__init__(asked, folder)

    @override
    def close(self) -> None:
        super().close()
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
        return self.fetched_task.task.task

    @property
    def fetched_task(self) -> FetchedTask:
        """The attacker's open task with its model, as the aggregator gave it."""
        if self._given is None or self.silo.sealed_task() != self._given.sealed:
            self._given = self.silo.fetch_task()
        return self._given

    def update(self) -> bytes:
        """An honest update for the attacker's task, of which the aggregator has nothing."""
        self.forget_upload()
        return self.silo.update(self.fetched_task)

    def forget_upload(self) -> None:
        """Make the aggregator drop what it has of an upload: nothing that follows depends on what was before."""
        # An upload closes the connections of those before, and has its turn when these are over.
        self.silo.patch(self.task, b"", Upload_Offset=str(10**17))
        if kept := self.stored_bytes():
            self.silo.patch(self.task, bytes(kept + 9), kept, Upload_Length=str(kept))
        if self.stored_bytes():
            raise NotRefusedError(f"{self.stored_bytes()} bytes of an upload stayed that was refused")

    def stored_bytes(self) -> int:
        """Bytes that the aggregator has of the attacker's upload."""
        return int(self.silo.head(self.task).headers["Upload-Offset"])

    def expect_nothing_kept(self) -> None:
        """Require that no byte of a refused upload stayed at the aggregator.

        :raises NotRefusedError: when something did.
        """
        if kept := self.stored_bytes():
            raise NotRefusedError(f"{kept} bytes of an upload stayed that was refused")

    def play_round(self) -> None:
        """Both silos answer, so that the next round opens."""
        self.forget_upload()
        before = self.task
        self.silo.answer(self.fetched_task)
        self.other.answer(self.other.fetch_task())
        self.silo.task(before)

    # --- What a service has of its own.

    @property
    @override
    def pid(self) -> int:
        return self.process.pid

    @override
    def proof(self, method: str, path: str) -> str:
        return self.silo.proof(method, path)

    @override
    def connect(self) -> ssl.SSLSocket:
        return self.silo.socket()

    @override
    def defects(self) -> str:
        if not self.process.running:
            return "the aggregator has ended"
        return "a traceback in the aggregator's log" if "Traceback" in self.site.log() else ""
