"""What the trainer has dropped, and the model of its task, as the guard reads them.

Nothing in a drop is trusted: its files must be plain files of bounded size. Its tensors may change, or be cut off,
while they are read, and so may the inbox: neither is ever mapped. What has to be read more than once is copied first,
into a file without a name that only the guard has open.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedRandom, BufferedReader
from pathlib import Path
from tempfile import TemporaryFile

import numpy as np

from fedsilo.errors import FileDamaged, PolicyRefused
from fedsilo.files.digests import algorithm_of, file_digest
from fedsilo.silo.drop import REPLY, TENSORS, damaged_file
from fedsilo.silo.reply import ReplyMetadata
from fedsilo.silo.trainer_files import read_object, trainer_file
from fedsilo.transforms.guard import MODEL
from fedsilo.wire import BlobReader, Contract, MappedTensors, Task
from fedsilo.wire.blob import MAX_BLOB_HEADER_BYTES, map_blob

_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True)
class DroppedReply:
    """The reply to a task in a drop that is complete, for `fedsilo.silo.release`.

    :param contract: what may leave of it, and so how large it may be.
    :param blobs: directory of the task's tensors.
    :param scratch: directory in which copies may take space.
    """

    drop: Path
    task: Task
    contract: Contract
    blobs: Path
    scratch: Path

    def metadata(self) -> ReplyMetadata:
        """All but the tensors."""
        return ReplyMetadata.parse(read_object(self.drop / REPLY))

    @contextmanager
    def passing(self) -> Iterator[BlobReader]:
        """The tensors in one pass."""
        with self._tensors() as file:
            yield BlobReader(self.drop / TENSORS, file)

    @contextmanager
    def kept_tensors(self) -> Iterator[MappedTensors]:
        """The tensors of a copy."""
        limit = _max_bytes(self.contract)
        with (
            self._tensors() as file,
            _own_copy(file, self.scratch, limit) as copied,
            map_blob(self.drop / TENSORS, copied) as tensors,
        ):
            yield tensors

    @contextmanager
    def model(self) -> Iterator[Mapping[str, np.ndarray] | None]:
        """The task's model, of a copy that has the digest of the signed task; None where it hands out none.

        :raises FileDamaged: when the file is not that model.
        """
        link = next((link for link in self.task.blobs if link.name == MODEL), None)
        if link is None:
            yield None
            return
        path = self.blobs / link.digest
        with path.open("rb") as given, _own_copy(given, self.scratch, link.length) as copied:
            if file_digest(copied, algorithm_of(link.digest)) != link.digest:
                raise FileDamaged(
                    f"{path}: damaged, it is not the model of task {self.task.task}; start the guard again"
                )
            with map_blob(path, copied) as model:
                yield model

    @contextmanager
    def _tensors(self) -> Iterator[BufferedReader]:
        limit = _max_bytes(self.contract)
        with trainer_file(self.drop / TENSORS) as file:
            if os.fstat(file.fileno()).st_size > limit:
                raise PolicyRefused(f"tensors: larger than the {limit} bytes that the contract can fill")
            yield file


def require_undamaged(drop: Path, contract: Contract) -> None:
    """Check a drop that was complete before this guard asked for it.

    :raises FileDamaged: naming the file that is not what the trainer wrote.
    """
    damaged = damaged_file(drop, trainer_file, _max_bytes(contract))
    if damaged is not None:
        raise FileDamaged(
            f"{drop.name}/{damaged.name}: damaged, it is not what the trainer wrote; start the trainer again"
        )


def _max_bytes(contract: Contract) -> int:
    return contract.max_bytes() + MAX_BLOB_HEADER_BYTES + 8


@contextmanager
def _own_copy(file: BufferedReader, directory: Path, limit: int) -> Iterator[BufferedRandom]:
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
