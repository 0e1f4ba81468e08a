"""Time that only passes when nobody has anything to do: an event loop, threads that take turns with it, and clocks.

One thread runs at a time, and everything follows from the order in which callbacks were scheduled, so that a run can
be repeated.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, tzinfo
from typing import Any, Generic, TypeVar
from unittest import mock

from typing_extensions import override

from fedsilo_agent.guard import audit

T = TypeVar("T")

EPOCH = 1_700_000_000.0
"""Unix time at which every run begins."""

WORK_SECONDS = 0.002
"""Time that work in a thread takes: other callbacks come between its order and its result."""


class StuckError(Exception):
    """Nobody waits for anything but the others: the run would never end."""


class VirtualLoop(asyncio.BaseEventLoop):
    """An event loop whose clock jumps to the next callback, and which runs the work of threads itself."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self._clock_resolution = 1e-9
        self._selector = self  # what the base class waits with

    @override
    def time(self) -> float:
        """Seconds since the run began."""
        return self.now

    def select(self, timeout: float | None) -> list[Any]:
        """Let the clock jump to the next callback, in place of a wait."""
        if timeout is None:
            raise StuckError("no callback is scheduled")
        self.now += max(0.0, timeout)
        return []

    def _process_events(self, events: list[Any]) -> None:
        """Do nothing, because no events of a selector come in virtual time."""

    def _write_to_self(self) -> None:
        """Nobody waits for files."""

    @override
    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        """Run it a little later and to its end, as a thread does, whether or not somebody still waits for it."""
        future: asyncio.Future[Any] = self.create_future()

        def work() -> None:
            try:
                result = func(*args)
            except BaseException as error:
                if not future.done():
                    future.set_exception(error)
            else:
                if not future.done():
                    future.set_result(result)

        self.call_later(WORK_SECONDS, work)
        return future

    @override
    async def sendfile(self, *_: Any, **__: Any) -> int:
        """There is no system to do it: the sender copies the bytes itself."""
        raise NotImplementedError


class Actor(Generic[T]):
    """Blocking code in a thread that runs only while the loop waits for it, between two of its sleeps.

    :param ended: called with its result, and the error that ended it or None.
    """

    def __init__(
        self, loop: VirtualLoop, run: Callable[[], T], ended: Callable[[T | None, BaseException | None], None]
    ) -> None:
        self._loop = loop
        self._run = run
        self._ended = ended
        self._mine, self._loops = threading.Lock(), threading.Lock()  # each is released by the other side
        self._mine.acquire()
        self._loops.acquire()
        self._slept: float | None = None
        self._result: T | None = None
        self._error: BaseException | None = None
        self._killed: BaseException | None = None
        self.alive = True
        context = contextvars.copy_context()
        self._thread = threading.Thread(target=lambda: context.run(self._work), daemon=True)
        self._thread.start()
        loop.call_soon(self._continue)

    def kill(self, why: BaseException) -> None:
        """End it where it sleeps."""
        if self.alive:
            self._killed = why
            self._continue()

    def sleep(self, seconds: float) -> None:
        """What its thread calls to let time pass."""
        self._slept = seconds
        self._loops.release()
        self._mine.acquire()
        if self._killed is not None:
            raise self._killed

    def _work(self) -> None:
        _ACTORS.actor = self
        self._mine.acquire()
        try:
            if self._killed is None:
                self._result = self._run()
        except BaseException as error:
            self._error = error
        self._slept = None
        self._loops.release()

    def _continue(self) -> None:
        if not self.alive:
            return
        self._mine.release()
        self._loops.acquire()
        if self._slept is not None:
            self._loop.call_later(self._slept, self._continue)
            return
        self.alive = False
        self._thread.join()
        self._ended(self._result, self._error)


_ACTORS = threading.local()


def _sleep(seconds: float) -> None:
    actor: Actor[Any] | None = getattr(_ACTORS, "actor", None)
    assert actor is not None, "the event loop must never block"
    actor.sleep(seconds)


@contextmanager
def virtual_clocks(loop: VirtualLoop) -> Iterator[None]:
    """Every clock that the product reads shows the loop's time."""

    class Clock(datetime):
        @classmethod
        @override
        def now(cls, tz: tzinfo | None = UTC) -> Any:
            return datetime.fromtimestamp(EPOCH + loop.now, tz)

    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(time, "monotonic", loop.time))
        stack.enter_context(mock.patch.object(time, "time", lambda: EPOCH + loop.now))
        stack.enter_context(mock.patch.object(time, "sleep", _sleep))
        stack.enter_context(mock.patch.object(audit, "datetime", Clock))
        yield
