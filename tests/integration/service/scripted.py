"""An aggregator that does what a test tells it to: what a guard meets when the other side is hostile or breaks down."""

from __future__ import annotations

import json
import re
import ssl
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from typing_extensions import override

from fedsilo.errors import Problem
from fedsilo.silo.volume import Volume
from fedsilo.wire import (
    BlobLink,
    SigningKey,
    Task,
    Tree,
    problem_document,
    seal_task,
    write_blob,
    write_tensors,
)
from tests.integration.service.client import contract_of, said_of, signature_of
from tests.integration.service.site import Process, Site, federation, wait_until
from tests.updates import digest_of

TREE: Tree = {
    "encoder.weight": np.arange(24, dtype=np.float32).reshape(6, 4),
    "classifier.weight": np.ones((3, 6), np.float32),
}

OVERTAKEN_ANSWER = "accepted, and the answer never arrives"
LOST_ANSWER = "taken, neither accepted nor answered"
DISK_FULL_ANSWER = "refused, for the disk is full"

ROUNDS = 500
"""Rounds of the job: a guard answers each once, and several tests may share one guard."""


class ScriptedAggregator:
    """An HTTPS server with the job's own keys and certificate, one silo's guard, and that silo's trainer.

    :param tree: the job's model.
    :param changes: of the job, as `federation` takes them.
    :ivar uploads: task -> the bodies of its uploads, in order.
    :ivar failures: task -> what the guard reported.
    :ivar requests: method and path of everything that was asked.
    :ivar outcomes: what becomes of the next uploads; without one, they are accepted.
    :ivar again: whether the next request for a task is given the task that it has, as after a restart.
    :ivar instead: whether it has answered a request for a task, a blob or an update in a way of its own.
    :ivar redirect: where every request for a task is sent, if anywhere.
    :ivar more: further arguments of the guard.
    :ivar before: a command that runs the guard.
    :ivar log_before: task -> the guard's audit log when its update was first announced.
    """

    def __init__(
        self,
        root: Path,
        tree: Tree = TREE,
        more: Sequence[str] = (),
        before: Sequence[str] = (),
        **changes: Any,
    ) -> None:
        self.tree, self.more, self.before = tree, more, before
        self.uploads: dict[str, list[bytes]] = defaultdict(list)
        self.failures: dict[str, dict[str, str]] = {}
        self.requests: list[str] = []
        self.outcomes: deque[str] = deque()
        self.again = False
        self.instead: Callable[[BaseHTTPRequestHandler], bool] = lambda _: False
        self.redirect = ""
        self.log_before: dict[str, str] = {}
        self.accepted: set[str] = set()
        self.sealed, self.name = b"", ""
        self.news = threading.Condition()
        self._server = _Server(("127.0.0.1", 0), _handler(self))
        self.site = Site(root, federation(**({"rounds": ROUNDS} | changes)), self._server.server_port)
        self.volume: Volume = self.site.workdir.volume("north")
        secrets = self.site.workdir.secrets
        self.key = SigningKey.load(secrets / "task-key.pem")
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(secrets / "server.crt", secrets / "server.key")
        self._server.socket = tls.wrap_socket(
            self._server.socket, server_side=True, do_handshake_on_connect=False
        )
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self.contract = contract_of(self.site, "train", tree)
        self.blob = write_blob(tree, self.site.workdir.aggregator)
        self._announce()
        self.guard: Process | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        self.guard = self.site.guard(more=self.more, before=self.before)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self.guard is not None
        self.guard.kill()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def task(self, name: str, **changes: Any) -> Task:
        """An honest task for the silo `north` of the round that its name begins with, or with some fields changed."""
        round = re.match(r"r(\d+)", name)
        honest: dict[str, Any] = {
            "job": self.site.uid,
            "silo": self.site.silos[0],
            "task": name,
            "round": int(round[1]) if round else 1,
            "phase": "train",
            "step": "train",
            "spec_digest": bytes.fromhex(self.site.spec_digest),
            "contract": bytes.fromhex(self.contract.digest()),
            "blobs": (BlobLink("model", self.blob.digest, self.blob.length),),
        }
        return Task(**(honest | changes))

    def offer(self, task: Task, key: SigningKey | None = None) -> None:
        """Make this the guard's task."""
        self.offer_bytes(task.task, seal_task(task, key or self.key))

    def offer_again(self) -> None:
        """Give the guard the task that it has, once."""
        with self.news:
            self.again = True
            self.news.notify_all()

    def offer_bytes(self, name: str, sealed: bytes) -> None:
        with self.news:
            self.name, self.sealed = name, sealed
            self.news.notify_all()

    @property
    def next_round(self) -> str:
        """The round after all that the guard has answered, be it with failures, as names of tasks begin with it."""
        return f"r{1 + max((line['round'] for line in self.audit() if 'taskDigest' in line), default=0):05}"

    def drop(self, task: str, tree: Tree | None = None, **reply: Any) -> Path:
        """What the trainer of the silo hands over, complete; returns its directory."""
        directory = self.volume.drop / task
        directory.mkdir()
        write_tensors(self.tree if tree is None else tree, directory / "tensors")
        self.complete(directory, **(said_of(self.site.federation.job.spec) | reply))
        return directory

    @staticmethod
    def complete(directory: Path, **reply: Any) -> None:
        """Write the `reply.json` that says that a drop is complete; it is there whole, as a trainer's is."""
        document = {"samples": 10, "metrics": {"loss": 0.5}, "support": {}} | reply
        (directory / "reply.json.tmp").write_text(json.dumps(document))
        (directory / "reply.json.tmp").rename(directory / "reply.json")

    def audit(self) -> list[dict[str, Any]]:
        path = self.volume.audit / "log.jsonl"
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        return [json.loads(line) for line in lines if line.endswith("\n")]  # the last may be on its way

    def events(self, task: str) -> list[str]:
        """What the audit log says of a task."""
        return [str(line["event"]) for line in self.audit() if line.get("task") == task]

    def wait_acknowledged(self, task: str) -> None:
        """Wait until the guard knows that the update was accepted."""
        wait_until(lambda: "acknowledged" in self.events(task), f"the acknowledgement of {task}")

    def _announce(self) -> None:
        document = {"signature": signature_of(self.tree).to_dict(), "isolation": "none"}
        (self.volume.drop / "signature.json").write_text(json.dumps(document))


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    @override
    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that a killed guard leaves is no news."""


def _handler(aggregator: ScriptedAggregator) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        @override
        def log_message(self, *_: Any) -> None:
            """The test looks at `requests`."""

        def do_GET(self) -> None:
            self._note()
            if aggregator.instead(self):
                return
            if "/blobs/" in self.path:
                self._answer(200, (aggregator.site.workdir.aggregator / aggregator.blob.digest).read_bytes())
                return
            after, wait = re.findall("(?:after|wait)=([^&]*)", self.path)
            with aggregator.news:
                aggregator.news.wait_for(
                    lambda: aggregator.again or aggregator.name not in ("", after), min(5.0, float(wait))
                )
                name, sealed = aggregator.name, aggregator.sealed
                after, aggregator.again = ("", False) if aggregator.again else (after, False)
            if aggregator.redirect:
                self._answer(307, b"", Location=aggregator.redirect)
            elif name in ("", after):
                self._answer(204, b"")
            else:
                self._answer(200, sealed)

        def do_HEAD(self) -> None:
            self._note()
            if aggregator.instead(self):
                return
            self._keep_log()
            if self.headers["Upload-Digest"] in aggregator.accepted:
                self._answer(200, b"", **{"Upload-Complete": "?1"})
            else:
                self._answer(200, b"", **{"Upload-Complete": "?0", "Upload-Offset": "0"})

        def do_PATCH(self) -> None:
            self._note()
            self._keep_log()
            body = self.rfile.read(int(self.headers["Content-Length"]))
            outcome = aggregator.outcomes.popleft() if aggregator.outcomes else ""
            if outcome in ("", OVERTAKEN_ANSWER):
                aggregator.accepted.add(digest_of(body))
            aggregator.uploads[self._task()].append(body)
            if outcome == DISK_FULL_ANSWER:
                document = problem_document(Problem("storage-full", "no space"))
                self._answer(507, json.dumps(document).encode(), Problem="storage-full")
            elif outcome:
                self.rfile.read(1)  # until the guard hangs up
            else:
                self._answer(201, b"{}")

        def do_POST(self) -> None:
            self._note()
            report = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            aggregator.failures[self._task()] = report
            self._answer(204, b"")

        def _keep_log(self) -> None:
            log = aggregator.volume.audit / "log.jsonl"
            aggregator.log_before.setdefault(self._task(), log.read_text())

        def _note(self) -> None:
            aggregator.requests.append(f"{self.command} {self.path}")

        def _task(self) -> str:
            return self.path.rpartition("/")[2]

        def _answer(self, status: int, body: bytes, **headers: str) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            if status != 204:
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    return Handler
