"""The noise of an update, where a job's differential privacy has the unit of a whole silo: the guard's own work.

The trainer may change its drop, and whoever may write the inbox the model that the change is counted from, while they
are read. So both are copied first, each once, into files without a name that only the guard has open.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedRandom, BufferedReader
from pathlib import Path
from tempfile import TemporaryFile

from fedsilo.digests import algorithm_of, file_digest
from fedsilo.errors import FileDamaged, PolicyRefused
from fedsilo.methods.silo_privacy import UpdatePrivacy
from fedsilo.silo.private_update import MODEL, private_pieces, purpose
from fedsilo.silo.secret import Secret
from fedsilo.wire import Task
from fedsilo.wire.blob import map_blob

_CHUNK_BYTES = 1 << 20


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
        link = next((link for link in task.blobs if link.name == MODEL), None)
        if link is None:
            raise PolicyRefused(f"task {task.task}: hands out no model from which a silo's change is counted")
        path = self.blobs / link.digest
        with path.open("rb") as given, own_copy(given, directory, link.length) as copied:
            if file_digest(copied, algorithm_of(link.digest)) != link.digest:
                raise FileDamaged(
                    f"{path}: damaged, it is not the model of task {task.task}; start the guard again"
                )
            with map_blob(path, copied) as base, map_blob(Path("tensors"), reply) as model:
                random = self.secret.generator(*purpose(task.phase, task.round, model, base))
                for name, piece in private_pieces(names, model, base, self.privacy, random):
                    yield name, piece.data.cast("B")


@contextmanager
def own_copy(file: BufferedReader, directory: Path, limit: int) -> Iterator[BufferedRandom]:
    """A copy of an open file, without a name, from its beginning; gone at the end.

    :param limit: bytes after which the file is too large.
    :raises PolicyRefused: when it is.
    :raises OSError: when the disk is full.
    """
    with TemporaryFile(dir=directory) as copied:
        while piece := file.read(_CHUNK_BYTES):
            copied.write(piece)
            if copied.tell() > limit:
                raise PolicyRefused(f"{file.name}: has grown over {limit} bytes while it was read")
        copied.flush()
        copied.seek(0)
        yield copied
