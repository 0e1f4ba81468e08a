"""A reply and what leaves of it, in memory: nobody else changes arrays there, so that none has to be copied."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext

import numpy as np

from fedsilo.methods.interface import Reply, SiloTask
from fedsilo.methods.state import Tree, as_stored
from fedsilo.silo.release import EgressSummary
from fedsilo.silo.reply import ReplyMetadata, reply_document
from fedsilo.transforms.guard import MODEL
from fedsilo.wire import DTYPES, Contract
from fedsilo.wire.tensors import TensorSpec, raw_bytes, require_finite, spec_of


class HeldReply:
    """A silo half's reply to a task."""

    def __init__(self, reply: Reply, task: SiloTask) -> None:
        self._reply, self._task = reply, task
        self._tensors = {name: as_stored(array) for name, array in reply.tensors.items()}

    def metadata(self) -> ReplyMetadata:
        """All but the tensors, as a trainer would write it."""
        return ReplyMetadata.parse(reply_document(self._reply))

    @property
    def specs(self) -> dict[str, TensorSpec]:
        """What the tensors look like."""
        return {name: spec_of(name, array) for name, array in self._tensors.items()}

    def pieces(self) -> Iterator[tuple[str, memoryview]]:
        """Tensors that have items, each in one piece; in the order of a file, whose first fault is this one's too."""
        for name in sorted(self._tensors, key=lambda name: -self._tensors[name].itemsize):
            if self._tensors[name].size:
                yield name, raw_bytes(self._tensors[name]).data

    def passing(self) -> AbstractContextManager[HeldReply]:
        """The tensors, to be read once."""
        return nullcontext(self)

    def kept_tensors(self) -> AbstractContextManager[Tree]:
        """Context with the reply's tensors by name, without a copy."""
        return nullcontext(self._tensors)

    def model(self) -> AbstractContextManager[Mapping[str, np.ndarray] | None]:
        """The task's model itself."""
        return nullcontext(self._task.trees.get(MODEL))


def new_copy(contract: Contract, leaving: EgressSummary) -> AbstractContextManager[HeldCopy]:
    """A copy of what may leave in answer to a task with this contract."""
    return nullcontext(HeldCopy(contract, leaving))


class HeldCopy:
    """What leaves of a reply, in memory; a tensor that comes in one piece is that piece."""

    def __init__(self, contract: Contract, leaving: EgressSummary) -> None:
        self._kinds, self._blocks = contract.kinds(), leaving.blocks
        self._specs = {spec.name: spec for _, spec in leaving.blocks}
        self._pieces: dict[str, list[np.ndarray]] = {name: [] for name in self._specs}

    def write(self, name: str, piece: memoryview) -> None:
        """Take the next items of a tensor.

        :raises Problem: as `require_finite`.
        """
        items = np.frombuffer(piece, DTYPES[self._specs[name].dtype])
        require_finite({name: items})
        self._pieces[name].append(items)

    def read(self, name: str) -> np.ndarray:
        """A tensor that is complete."""
        spec, pieces = self._specs[name], self._pieces[name]
        if len(pieces) != 1:
            pieces[:] = [np.concatenate([np.empty(0, DTYPES[spec.dtype]), *pieces])]
        return pieces[0].reshape(spec.shape)

    def read_items(self, name: str, first: int, count: int) -> np.ndarray:
        """Some items of a tensor that is complete, flat."""
        return self.read(name).reshape(-1)[first : first + count]

    def publish(self) -> dict[str, Tree]:
        """Payload kind -> tensors, in the contract's order."""
        return {
            kind: {spec.name: self.read(spec.name) for other, spec in self._blocks if other == kind}
            for kind in self._kinds
        }
