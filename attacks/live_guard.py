"""The guard that is attacked: the real process, its aggregator and its trainer, which do what a program tells them."""

from __future__ import annotations

import contextlib
import itertools
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

from attacks.cost import Meter
from attacks.programs import NotRefusedError
from fedsilo.wire import SigningKey, Task, seal_task
from tests.integration.service.scripted import ScriptedAggregator
from tests.integration.service.site import wait_until

Replacement = Callable[[BaseHTTPRequestHandler], bool]


PIECE = b"x" * 65536

ROUNDS = 5000
"""More than are ever played."""


def answer(request: BaseHTTPRequestHandler, status: int, body: bytes = b"", **headers: str) -> bool:
    """Send a complete response to a request, and return True: the request is answered."""
    request.send_response(status)
    for name, value in headers.items():
        request.send_header(name, value)
    if status != 204:
        request.send_header("Content-Length", str(len(body)))
    request.end_headers()
    with contextlib.suppress(OSError):
        request.wfile.write(body)
    return True


def endless(request: BaseHTTPRequestHandler) -> bool:
    """Answer a request with as many bytes as the connection takes, in chunks."""
    request.send_response(200)
    request.send_header("Transfer-Encoding", "chunked")
    request.end_headers()
    with contextlib.suppress(OSError):
        while True:
            request.wfile.write(b"%x\r\n%s\r\n" % (len(PIECE), PIECE))
    request.close_connection = True
    return True


class LiveGuard:
    """What a program attacks.

    :param job: what of its job is otherwise than usual, as `ScriptedAggregator` takes it.
    :ivar aggregator: the aggregator and the trainer in one; both are hostile.
    :ivar answers: what the guard did, with how often.
    """

    def __init__(self, folder: Path, **job: Any) -> None:
        self.folder = folder
        self.aggregator = ScriptedAggregator(folder, rounds=ROUNDS, **job)
        self.aggregator.__enter__()
        self.answers: Counter[str] = Counter()
        self._names = itertools.count(1)

    def close(self) -> None:
        """End all processes around the attacked guard."""
        self.aggregator.__exit__(None, None, None)

    # --- Attacking.

    def name(self) -> str:
        """Name of a task that was never used, of the round that comes next."""
        return f"{self.aggregator.next_round}-t{next(self._names)}"

    def answer_honestly(self) -> float:
        """An honest task and an honest answer of the trainer; seconds until the aggregator has it."""
        task, began = self.name(), time.monotonic()
        self.aggregator.drop(task)
        self.aggregator.offer(self.aggregator.task(task))
        self.aggregator.wait_acknowledged(task)
        return time.monotonic() - began

    @contextmanager
    def answering(self, instead: Replacement) -> Iterator[None]:
        """Requests are answered so."""
        self.aggregator.instead = instead
        try:
            yield
        finally:
            self.aggregator.instead = lambda _: False

    def wake(self) -> None:
        """End the request that is held, so that the guard asks again."""
        self.aggregator.offer_again()

    def wait_for_requests(self, number: int) -> None:
        """Return when the guard has made so many requests."""
        wait_until(lambda: self.requests >= number, f"request {number} of the guard")

    # --- What must happen.

    def expect_untrusted(self, code: str, task: Task | bytes, key: SigningKey | None = None) -> None:
        """The guard refuses the task with this code, records that, and does nothing else.

        :raises NotRefusedError: when it does anything else.
        """
        self.answer_honestly()  # The same refusal is recorded once until a task was answered.
        before = len(self.aggregator.audit())
        sealed = task if isinstance(task, bytes) else seal_task(task, key or self.aggregator.key)
        self.aggregator.offer_bytes(self.name(), sealed)
        line = wait_until(lambda: self.aggregator.audit()[before:], f"the refusal {code} in the audit log")[0]
        if (line["event"], line.get("code")) != ("task-refused", code):
            raise NotRefusedError(f"the audit log has {json.dumps(line)} instead of {code}")
        self.note(f"task refused: {code}")

    def expect_reported(self, task: Task, words: str, reason: str = "PolicyRefused") -> None:
        """The guard reports a failure of the task that says so, and nothing leaves.

        :raises NotRefusedError: when it does anything else.
        """
        name = task.task
        self.aggregator.offer(task)
        wait_until(
            lambda: name in self.aggregator.failures or self.aggregator.uploads[name], f"an answer to {name}"
        )
        report = self.aggregator.failures.get(name, {})
        # Where the job protects single values, the text is in the audit log alone.
        texts = [report.get("message", ""), *(line.get("detail", "") for line in self.aggregator.audit())]
        if report.get("reason") != reason or not any(words in text for text in texts):
            raise NotRefusedError(f"the guard reported {report} instead of {reason}: {words}")
        self.expect_nothing_left(name)
        self.note(f"{reason}: {words}")

    def expect_drop_refused(self, task: str, words: str) -> None:
        """The guard refuses what the trainer dropped for a task."""
        self.expect_reported(self.aggregator.task(task), words)

    def expect_nothing_left(self, task: str) -> None:
        """Neither an update of the task was sent nor its departure recorded.

        :raises NotRefusedError: when one was.
        """
        if self.aggregator.uploads[task] or "departure" in self.aggregator.events(task):
            raise NotRefusedError(f"an update of {task} has left the silo")

    def expect_logged(self, words: str) -> None:
        """The guard's own log says so."""
        wait_until(lambda: words in self.log, f"{words!r} in the guard's log")
        self.note(words)

    def note(self, what: str, times: int = 1) -> None:
        """Count what the guard did."""
        self.answers[what] += times

    # --- What it costs.

    @property
    def log(self) -> str:
        """What the guard has logged."""
        return self.aggregator.site.log("north")

    @property
    def requests(self) -> int:
        """Requests that the guard has made."""
        return len(self.aggregator.requests)

    def meter(self) -> Meter:
        """Measures the guard from now on."""
        assert self.aggregator.guard is not None
        return Meter(self.aggregator.guard.pid)

    def defects(self) -> str:
        """What the guard's log says of defects; "" if it is as it must be."""
        assert self.aggregator.guard is not None
        if not self.aggregator.guard.running:
            return "the guard has ended"
        return "a traceback in the guard's log" if "Traceback" in self.log else ""
