"""The noise of an update, where a job's differential privacy has the unit of a whole silo: the guard's own work.

The trainer may change its drop, and whoever may write the inbox the model that the change is counted from, while they
are read. So both are copied first, each once, into files without a name that only the guard has open.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import BufferedRandom
from pathlib import Path

from fedsilo.silo.secret import Secret
from fedsilo.transforms.update_noise.clipped import private_pieces, purpose
from fedsilo.transforms.update_noise.privacy import UpdatePrivacy
from fedsilo.wire import Task
from fedsilo.wire.blob import map_blob
from fedsilo_agent.guard.task_model import task_model


@dataclass(frozen=True)
class UpdateNoise:
    """What makes one job's updates private.

    :param secret: from which noise is drawn; nobody but the guard reads it.
    :param blobs: directory of the task's tensors.
    """

    privacy: UpdatePrivacy
    secret: Secret
    blobs: Path

    def pieces(
        self, task: Task, names: Sequence[str], reply: BufferedRandom, directory: Path
    ) -> Iterator[tuple[str, memoryview]]:
        """The update's tensors in pieces of bytes, with the names of their tensors.

        :param names: of all tensors, in the contract's order.
        :param reply: the guard's own copy of the trainer's tensors.
        :param directory: in which the copy of the task's model may take space.
        :raises PolicyRefused: when the reply is not a change of the task's model.
        """
        if not names:
            return
        with (
            task_model(task, self.blobs, directory) as base,
            map_blob(Path("tensors"), reply) as model,
        ):
            random = self.secret.generator(*purpose(task.phase, task.round, model, base))
            for name, piece in private_pieces(names, model, base, self.privacy, random):
                yield name, piece.data.cast("B")
