"""The trainer receives a task, runs the method's silo half on the silo's own examples, and delivers the reply."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from fedsilo.api.python_import import error_summary, place_of
from fedsilo.errors import FedsiloError, MethodError, StorageFailed
from fedsilo.files.durable import is_disk_full
from fedsilo.freed_memory import release_free_memory
from fedsilo.logs import set_log_facts
from fedsilo.silo.file_watch import FileWatcher
from fedsilo.silo.personal import PersonalModel
from fedsilo.silo.runner import TaskRunner
from fedsilo_agent.trainer.mailbox import Mailbox

if TYPE_CHECKING:
    from fedsilo_agent.trainer.ranks import RankGroup

log = logging.getLogger("fedsilo.trainer")


class Trainer:
    """One silo's trainer for one job, over the shared volume.

    :param personal: where the institution finds its own model, if the method makes one.
    :param limit: seconds after which a task that the job's own training holds, or another rank, ends this process;
        None for no limit.
    :param held_by: what such a task is held by.
    """

    def __init__(
        self,
        mailbox: Mailbox,
        runner: TaskRunner | RankGroup,
        personal: PersonalModel,
        limit: float | None = None,
        held_by: str = "spec.training.trainer",
    ) -> None:
        self._limit = limit
        self._held_by = held_by
        self._mailbox = mailbox
        self._runner = runner
        self._personal = personal

    def run(self) -> None:
        """Answer tasks until the job ends."""
        changes = FileWatcher()
        waiting = changes.waiting(*self._mailbox.incoming)
        while not self._mailbox.is_finished():
            task = self._mailbox.pending_task()
            if task is None:
                waiting.sleep()
            else:
                self._publish()
                self.answer(task)
                release_free_memory()
                waiting = changes.waiting(*self._mailbox.incoming)
        self._publish()

    def answer(self, task: str) -> None:
        """Deliver a reply to the pending task, or the reason why there is none; nothing if it pends no more."""
        try:
            received = self._mailbox.receive(task)
            if received is None:
                return
            set_log_facts(round=received.task.round)
            private = self._mailbox.private_state(received.acknowledged)
            with self._ended_when_stuck(task):
                reply = self._runner.run(received.task, private)
            self._mailbox.deliver(received.id, reply, private)
        except FedsiloError as error:
            log.error("task %s: %s", task, error)
            self._mailbox.fail(task, error.reason, error.redacted_text)
        except (Exception, SystemExit) as error:
            if StorageFailed.of(error) is not None and not is_disk_full(error):
                raise  # no answer of the method's: the trainer is started again, and does the task again
            # Whatever a third party's method or model raises is reported, and the trainer goes on with the next round;
            # one that ended with 0 would be a trainer whose job is over.
            log.exception("task %s", task)
            said = FedsiloError(f"{error_summary(error, saw_data=True)}{place_of(error)}")
            self._mailbox.fail(task, "TrainerError", said.redacted_text)
        else:
            log.info(
                "task %s: answered with %d tensors, metrics %s", task, len(reply.tensors), dict(reply.metrics)
            )

    @contextmanager
    def _ended_when_stuck(self, task: str) -> Iterator[None]:
        """End the process where foreign code returns neither in time nor when it is interrupted."""
        if self._limit is None:
            yield
            return
        timer = threading.Timer(self._limit, self._end, [task])
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _end(self, task: str) -> None:
        failure = MethodError(
            f"task {task}: {self._held_by} did not return within {self._limit:g} s, nor when it was interrupted; "
            "let it do less, and catch no BaseException"
        )
        log.error("%s", failure)
        self._mailbox.give_up(failure.reason, failure.redacted_text)
        os._exit(failure.exit_code)

    def _publish(self) -> None:
        try:
            self._personal.publish(self._mailbox.acknowledged_state())
        except FedsiloError as damage:
            log.warning("the silo's own model is not written: %s", damage)  # the next task reports the damage
