"""The trainer's other processes, where its silo has several devices: started, given every task, and ended.

The trainer is rank 0. Each other rank is a process of its own below it (`fedsilo_agent.trainer.rank`), with the same
namespaces and the environment that `torchrun` gives; it reads the same job and data, and runs the same tasks. What it
returns is dropped. No rank outlives the trainer: the end of its standard input ends it, and on Linux the trainer's
death does, also where it is stuck.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import pickle
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedsilo.errors import FedsiloError, MethodError
from fedsilo.learning.data_parallel import Rendezvous, join, leave, lost_connection
from fedsilo.learning.devices import pick_device
from fedsilo.methods.interface import Reply, SiloTask
from fedsilo.methods.state import State
from fedsilo.silo.runner import TaskRunner

REPORT_SECONDS = 5.0
"""Time in which the other ranks say what went wrong, once this one has failed."""

LAST_SECONDS = 60.0
"""Time in which they end a task that rank 0 has ended; all of them do the same work."""

STUCK_SECONDS = 10.0
"""Time in which rank 0 notices that another one has failed, before it is ended as well."""

END_SECONDS = 1.0
"""Time in which what a killed process has said is read to its end."""

log = logging.getLogger("fedsilo.trainer")


class RankFailed(MethodError):
    """Another process of the silo's training ended, did not answer, or failed first.

    :param reason: what it is reported under.
    """

    def __init__(self, message: str, reason: str = MethodError.reason) -> None:
        super().__init__(message)
        self.reason = reason


class RankProcess:
    """One process of the training beside the trainer itself.

    :param failed: called in a thread of its own when the process has said that it failed, or has ended.
    """

    def __init__(self, rank: int, arguments: Sequence[str], failed: Callable[[], None]) -> None:
        self.rank = rank
        # What is found here is found there: `-P` leaves out the current directory, which is on our path or is not.
        path = os.pathsep.join(directory or str(Path.cwd()) for directory in sys.path)
        environment = os.environ | {"PYTHONPATH": path}
        command = [sys.executable, "-P", "-m", "fedsilo_agent.trainer.rank", *arguments]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
        )
        self._answers = queue.SimpleQueue[dict[str, Any]]()
        self._failed = failed
        self._thread = threading.Thread(target=self._listen, name=f"rank {rank}", daemon=True)
        self._thread.start()

    @property
    def pid(self) -> int:
        """Process id of this rank."""
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        """Whether it runs no more."""
        return self._process.poll() is not None

    def send(self, environment: Mapping[str, str], task: SiloTask, private: State) -> None:
        """Have it run a task; one that has ended gets nothing, which its next answer says.

        :param environment: of rank 0.
        """
        assert self._process.stdin is not None
        try:
            own = {**environment, "RANK": str(self.rank), "LOCAL_RANK": str(self.rank)}
            pickle.dump((own, task, private), self._process.stdin)
            self._process.stdin.flush()
        except BrokenPipeError:
            log.warning("rank %d has ended", self.rank)

    def answer(self, seconds: float) -> dict[str, Any]:
        """What it says next: `ready`, `done`, or why it failed and when; waits at most so long.

        :raises queue.Empty: when it says nothing.
        """
        return self._answers.get(timeout=max(seconds, 0.001))

    def end(self) -> None:
        """Kill the process and wait for its end."""
        self._failed = lambda: None
        self._process.kill()
        self._process.wait()
        self._thread.join(
            END_SECONDS
        )  # longer only where a process that it has left behind holds the other end
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None and not (stream is self._process.stdout and self._thread.is_alive()):
                with contextlib.suppress(BrokenPipeError):
                    stream.close()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            answer = json.loads(line)
            self._answers.put(answer)
            if "message" in answer:
                self._report()
        code = self._process.wait()
        cause = ", as where memory is short" if code == -9 else ""
        message = f"ended with exit code {code}{cause}; see the trainer's log"
        self._answers.put({"at": 0.0, "message": message})
        self._report()

    def _report(self) -> None:
        threading.Thread(target=self._failed, name=f"rank {self.rank} failed", daemon=True).start()


class RankGroup:
    """All processes of the training but the trainer itself, which runs every task with them.

    :param arguments: of each of them: where it finds the job and the data.
    :param seconds: longest wait for each other within a task.
    :param stuck: called with the reason when this process does not notice that another has failed.
    """

    def __init__(
        self,
        runner: TaskRunner,
        arguments: Sequence[str],
        seconds: float,
        stuck: Callable[[FedsiloError], None],
    ) -> None:
        self._runner, self._arguments, self._seconds, self._stuck = runner, arguments, seconds, stuck
        self._count = runner.context.group.world_size
        self._rendezvous: Rendezvous | None = None
        self._others: list[RankProcess] = []
        self._running = threading.Lock()
        self.start()

    @property
    def pids(self) -> list[int]:
        """Process ids of all ranks but the trainer itself."""
        return [other.pid for other in self._others]

    def start(self) -> None:
        """Start those that do not run."""
        if not self._others:
            self._others = [
                RankProcess(rank, [*self._arguments, "--rank", f"{rank}/{self._count}"], self._watch)
                for rank in range(1, self._count)
            ]

    def run(self, task: SiloTask, private: State) -> Reply:
        """Run one task in all ranks, and return what rank 0 made of it.

        :raises RankFailed: when another rank is what failed.
        """
        self.start()
        with self._running:
            try:
                self._expect("ready", self._seconds)
                for other in self._others:
                    if other.has_ended:
                        raise _failure(other.rank, other.answer(END_SECONDS))
                self._rendezvous = Rendezvous(self._count)  # every process group has a store of its own
                os.environ.update(environment := self._rendezvous.environment())
                for other in self._others:
                    other.send(environment, task, private)
                reply = self._run_in_group(task, private)
                self._expect("done", LAST_SECONDS)
            except BaseException as error:
                failure = self._cause(error, time.monotonic())
                self.close()
                if failure is error:
                    raise
                raise failure from error
        return reply

    def close(self) -> None:
        """Kill all of them; the next task starts them again."""
        for other in self._others:
            other.end()
        self._others = []

    def _run_in_group(self, task: SiloTask, private: State) -> Reply:
        try:
            join(pick_device(self._runner.context.spec.training.device), self._seconds)
            return self._runner.run(task, private)
        finally:
            leave()

    def _expect(self, what: str, seconds: float) -> None:
        """Return when all have said this.

        :raises RankFailed: when one has failed, or says nothing for so long.
        """
        until = time.monotonic() + seconds
        for other in self._others:
            try:
                answer = other.answer(until - time.monotonic())
            except queue.Empty:
                raise RankFailed(f"training: rank {other.rank}: not {what} within {seconds:g} s") from None
            if what not in answer:
                raise _failure(other.rank, answer)

    def _cause(self, error: BaseException, at: float) -> BaseException:
        """The error that came first; lost connections follow of it, unless another rank does not answer at all."""
        if isinstance(error, RankFailed):
            return error
        until, found = at + REPORT_SECONDS, list[tuple[bool, float, BaseException]]()
        found.append((lost_connection(error), at, error))
        for other in self._others:
            try:
                while "message" not in (answer := other.answer(until - time.monotonic())):
                    pass
            except queue.Empty:
                found.append((True, 0.0, RankFailed(f"training: rank {other.rank}: does not answer")))
            else:
                found.append((answer.get("lost", False), answer["at"], _failure(other.rank, answer)))
        return min(found, key=lambda failure: failure[:2])[2]

    def _watch(self) -> None:
        """Another rank has failed: this one is given time to notice, and is then ended."""
        if not self._running.locked():
            return  # the next task says so
        if self._running.acquire(timeout=STUCK_SECONDS):
            self._running.release()
        else:
            self._stuck(
                RankFailed("training: another rank has failed, and rank 0 does not notice; see the log")
            )


def _failure(rank: int, answer: Mapping[str, Any]) -> RankFailed:
    return RankFailed(f"training: rank {rank}: {answer['message']}", answer.get("reason", MethodError.reason))
