"""Messages that guards send each other, which a task hands out beside what it gives the trainer."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from fedsilo.errors import PolicyRefused
from fedsilo.files.durable import make_own_directory, remove
from fedsilo.transforms.guard import Messages
from fedsilo.wire import Task, open_blob
from fedsilo_agent.guard.client import AggregatorClient
from fedsilo_agent.guard.task_check import TaskCheck

MAX_MESSAGE_BYTES = 1 << 20
"""Bytes that one tree of a step's task may hand out; 256 silos' messages have 45 kB."""


class MessageInbox:
    """What the guard fetches for itself.

    :param directory: that only the guard sees.
    """

    def __init__(self, directory: Path, check: TaskCheck, client: AggregatorClient) -> None:
        self._directory, self._check, self._client = directory, check, client

    async def fetch(self, task: Task) -> Messages:
        """The messages that a task hands out.

        :raises PolicyRefused: it is too much, or no messages.
        :raises Problem: it cannot be had.
        """
        found: dict[str, Mapping[str, bytes]] = {}
        for link in task.blobs:
            if not self._check.plan.is_for_guards(link.name):
                continue
            if link.length > MAX_MESSAGE_BYTES:
                raise PolicyRefused(
                    f"task {task.task}: {link.name} has {link.length} bytes, more than messages of silos have; "
                    "nothing is sent"
                )
            make_own_directory(self._directory)
            path = self._directory / "fetched"
            await self._client.download(link, path)
            with open_blob(path) as blob:
                found[link.name] = {name: array.tobytes() for name, array in blob.tree().items()}
            remove(path)
        return found
