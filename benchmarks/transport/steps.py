"""What a run records of its steps, from outside: named functions of the programs are wrapped where they start.

A step is the call of a function: when it began and ended, and the CPU seconds of its own thread meanwhile. Of a
coroutine those of its own steps on the event loop are counted, not what the loop does for it while it waits. The CPU
seconds of a step are also those of the step around it, if that is one of the same thread.
"""

from __future__ import annotations

import functools
import inspect
import json
import os
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from typing_extensions import override

Request = Callable[..., AbstractAsyncContextManager[Any]]

ACKNOWLEDGEMENTS = "acknowledgements"
"""The set of steps of a run that is to be timed: uploads, and the end of each."""

WATERFALL = "waterfall"
"""The set with everything in `STEPS`."""


@dataclass(frozen=True)
class Step:
    """A function of a role's program.

    :param label: what the waterfall calls it; the indentation says that it is part of the step above.
    :param function: `module:qualified.name`.
    """

    role: str
    label: str
    function: str


UPLOAD = Step("guards", "upload to its receipt", "fedsilo_agent.guard.client:AggregatorClient.upload")
RECEIPT = Step("guards", "  last byte to the receipt", "fedsilo.hub.https:HttpsClient.request")
"""From when the last piece of a body was handed to the connection to the head of the answer."""

STEPS = (
    Step("guards", "wait for the next task", "fedsilo_agent.guard.client:AggregatorClient.task"),
    Step("guards", "hand over to the trainer", "fedsilo_agent.guard.inbox:Inbox.put"),
    Step("guards", "  download, with its check", "fedsilo_agent.guard.client:AggregatorClient.download"),
    Step("guards", "  hash and write", "fedsilo_agent.guard.part_file:PartFile.append"),
    Step("guards", "wait for the drop", "fedsilo_agent.guard.drops:DropDirectory.complete"),
    Step("guards", "inspect, sign and record", "fedsilo_agent.guard.answering:AnswerRunner._sign"),
    Step("guards", "  check and lay out the update", "fedsilo_agent.guard.answering:sign_reply"),
    UPLOAD,
    RECEIPT,
    Step("trainers", "open the task", "fedsilo_agent.trainer.mailbox:Mailbox.receive"),
    Step("trainers", "deliver", "fedsilo_agent.trainer.mailbox:Mailbox.deliver"),
    Step("trainers", "  write the tensors", "fedsilo_agent.trainer.mailbox:write_drop"),
    Step("aggregator", "serve a blob", "fedsilo_aggregator.bodies:FileBody.prepare"),
    Step("aggregator", "receive an update", "fedsilo_aggregator.uploads:UploadStore.receive"),
    Step("aggregator", "  check", "fedsilo.wire.checker:UpdateCheck.feed"),
    Step("aggregator", "  write", "fedsilo.files.durable:AppendedFile.append"),
    Step("aggregator", "  sync", "fedsilo_aggregator.uploads:sync"),
    Step("aggregator", "close the round", "fedsilo.engine.round_engine:RoundEngine.settle"),
    Step("aggregator", "  fold", "fedsilo.engine.workflow:Workflow.fold"),
    Step("aggregator", "  store the model", "fedsilo.methods.state:State.store"),
    Step("aggregator", "  provenance", "fedsilo.engine.round_engine:RoundEngine._provenance"),
    Step("aggregator", "  open the next exchange", "fedsilo.engine.round_engine:RoundEngine._enter"),
    Step("aggregator", "  remove old files", "fedsilo.engine.store:JobStore.sweep"),
)


@dataclass(frozen=True)
class RecordedCall:
    """One recorded call of a step.

    :param began: and `ended`: `time.monotonic()`, which all processes of a machine share.
    :param where: process and thread.
    :param nested: whether the step around it has the same CPU seconds too.
    """

    role: str
    label: str
    began: float
    ended: float
    cpu: float
    where: str
    nested: bool = False


_outer_thread: ContextVar[int] = ContextVar("thread of the step around", default=0)


class Recorder:
    """What one process has recorded so far."""

    def __init__(self, role: str, directory: Path) -> None:
        self._role, self._directory = role, directory
        self._lock = threading.Lock()
        self._found: list[RecordedCall] = []

    def install(self, steps: str) -> None:
        """Wrap this role's functions; a function that is no more is left out."""
        chosen = STEPS if steps == WATERFALL else (UPLOAD, RECEIPT)
        for step in chosen:
            if step.role == self._role and (place := resolve_function(step.function)) is not None:
                holder, name = place
                wrapped = self._recorded_request if step is RECEIPT else self._wrapped_function
                setattr(holder, name, wrapped(step.label, getattr(holder, name)))

    def write(self) -> None:
        """Add what was recorded since the last time to this process's file."""
        with self._lock, (self._directory / f"{self._role}-{os.getpid()}.jsonl").open("a") as file:
            found, self._found = self._found, []
            file.writelines(json.dumps(asdict(one)) + "\n" for one in found)

    @contextmanager
    def _recording(self, label: str) -> Iterator[list[float]]:
        """Record the block under its label; its CPU seconds are those that it puts into the list, else those of this
        thread.
        """
        spent: list[float] = []
        thread = threading.get_ident()
        nested, token = _outer_thread.get() == thread, _outer_thread.set(thread)
        began, cpu = time.monotonic(), time.thread_time()
        try:
            yield spent
        finally:
            _outer_thread.reset(token)
            used = sum(spent) if spent else time.thread_time() - cpu
            where = f"{os.getpid()}.{thread}"
            found = RecordedCall(self._role, label, began, time.monotonic(), used, where, nested)
            with self._lock:
                self._found.append(found)

    def _recorded_request(self, label: str, request: Request) -> Request:
        """Requests, of which those whose body is sent in pieces are recorded."""

        @functools.wraps(request)
        @asynccontextmanager
        async def observe_request(
            client: object, method: str, path: str, headers: object = None, data: object = None
        ) -> AsyncIterator[Any]:
            sent: list[float] = []

            async def pieces(given: AsyncIterator[Any]) -> AsyncIterator[Any]:
                async for piece in given:
                    yield piece
                sent.append(time.monotonic())

            body = pieces(data) if isinstance(data, AsyncIterator) else data
            async with request(client, method, path, headers, body) as response:
                if sent:
                    where = f"{os.getpid()}.{threading.get_ident()}"
                    found = RecordedCall(
                        self._role, label, sent[0], time.monotonic(), 0.0, where, nested=True
                    )
                    with self._lock:
                        self._found.append(found)
                yield response

        return observe_request

    def _wrapped_function(self, label: str, function: Callable[..., Any]) -> Callable[..., Any]:
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def coroutine(*args: Any, **kwargs: Any) -> Any:
                with self._recording(label) as spent:
                    spent.append(0.0)
                    return await _SteppedCoroutine(function(*args, **kwargs), spent)

            return coroutine

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            with self._recording(label):
                return function(*args, **kwargs)

        return call


class _SteppedCoroutine(Awaitable[Any]):
    """A coroutine whose own CPU seconds are counted.

    :param spent: gets them.
    """

    def __init__(self, coroutine: Coroutine[Any, Any, Any], spent: list[float]) -> None:
        self._coroutine, self._spent = coroutine, spent

    @override
    def __await__(self) -> Generator[Any, Any, Any]:
        error: BaseException | None = None
        while True:
            began = time.thread_time()
            try:
                waited = self._coroutine.send(None) if error is None else self._coroutine.throw(error)
            except StopIteration as done:
                return done.value
            finally:
                self._spent[0] += time.thread_time() - began
            error = None
            try:
                yield waited
            except BaseException as thrown:
                error = thrown


def resolve_function(function: str) -> tuple[Any, str] | None:
    """The object that has a function, and its name there; None where there is none."""
    module, _, path = function.partition(":")
    *parents, name = path.split(".")
    try:
        holder: Any = import_module(module)
        for parent in parents:
            holder = getattr(holder, parent)
        getattr(holder, name)
    except (ImportError, AttributeError):
        return None
    return holder, name


def read_records(directory: Path) -> list[RecordedCall]:
    """What all processes of a run have recorded, in order."""
    found = [
        RecordedCall(**json.loads(line))
        for path in directory.glob("*.jsonl")
        for line in path.read_text().splitlines()
    ]
    return sorted(found, key=lambda one: one.began)
