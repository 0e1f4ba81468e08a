"""The model that a task hands out, as the guard reads it to compare a reply with it.

Whoever may write the inbox may change it while it is read. So it is copied first, once, into a file without a name that
only the guard has open, and compared with the digest that the signed task has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from io import BufferedRandom, BufferedReader
from pathlib import Path
from tempfile import TemporaryFile

import numpy as np

from fedsilo.errors import FileDamaged, PolicyRefused
from fedsilo.files.digests import algorithm_of, file_digest
from fedsilo.transforms.update_noise.clipped import MODEL
from fedsilo.wire import Task
from fedsilo.wire.blob import map_blob

_CHUNK_BYTES = 1 << 20


@contextmanager
def task_model(task: Task, blobs: Path, directory: Path) -> Iterator[Mapping[str, np.ndarray]]:
    """The tensors of a task's model, by name, mapped from a copy of the guard's own.

    :param blobs: directory of the task's tensors.
    :param directory: in which the copy may take space.
    :raises PolicyRefused: when the task hands out no model.
    :raises FileDamaged: when the file is not the model of the task.
    """
    link = next((link for link in task.blobs if link.name == MODEL), None)
    if link is None:
        raise PolicyRefused(f"task {task.task}: hands out no model with which the silo's could be compared")
    path = blobs / link.digest
    with path.open("rb") as given, own_copy(given, directory, link.length) as copied:
        if file_digest(copied, algorithm_of(link.digest)) != link.digest:
            raise FileDamaged(
                f"{path}: damaged, it is not the model of task {task.task}; start the guard again"
            )
        with map_blob(path, copied) as model:
            yield model


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
