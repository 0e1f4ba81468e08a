"""State of a method: named trees of tensors and plain values, nothing hidden.

A tree is held in memory while it is new and by reference to a content-addressed file once it is stored. Whoever reads
a state that was kept finds the same read-only mapping in both places. Trees that a round does not change are therefore
not written again.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from typing_extensions import override

from fedsilo.errors import MethodError
from fedsilo.files.digests import SHA256
from fedsilo.plain_numbers import plain_number
from fedsilo.wire import BlobRef, Scalar, Tree, copy_blob, open_blob, write_blob

__all__ = [
    "HeldTree",
    "KeptTree",
    "LoadedTree",
    "Scalar",
    "State",
    "StoredTree",
    "Tree",
    "as_stored",
    "require_finite",
    "stored_of",
]


class KeptTree(Mapping[str, np.ndarray]):
    """A tree that a state has kept: a read-only mapping from names to read-only arrays, which loads when it is read."""

    @abstractmethod
    def load(self) -> Tree:
        """The tree's tensors in a dictionary of the caller's own; the arrays stay read-only."""

    @override
    def __getitem__(self, name: str) -> np.ndarray:
        return self._tensors[name]

    @override
    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    @override
    def __len__(self) -> int:
        return len(self._tensors)

    @cached_property
    def _tensors(self) -> Tree:
        return self.load()


class HeldTree(KeptTree):
    """A tree in memory, as a simulation keeps it.

    :param tensors: which nobody changes any more.
    """

    def __init__(self, tensors: Mapping[str, np.ndarray]) -> None:
        self._held = {name: as_stored(array) for name, array in tensors.items()}

    @override
    def load(self) -> Tree:
        return dict(self._held)

    @override
    def __reduce__(self) -> tuple[type[HeldTree], tuple[Tree]]:
        """A copy is read-only too, which arrays that were pickled are not."""
        return HeldTree, (self._held,)


@dataclass(frozen=True)
class StoredTree(KeptTree):
    """A tree in a file named by its digest, which is mapped when the tree is read."""

    ref: BlobRef
    path: Path

    @override
    def load(self) -> LoadedTree:
        return LoadedTree(self, open_blob(self.path).tree())

    @override
    def __reduce__(self) -> tuple[type[StoredTree], tuple[BlobRef, Path]]:
        """A copy is of the reference, and not of what was read."""
        return StoredTree, (self.ref, self.path)


class LoadedTree(Tree):
    """Tensors of a stored tree, which need not be stored again as long as they are all that it holds.

    :param stored: where they lie.
    :param tensors: read-only, as it gives them.
    """

    def __init__(self, stored: StoredTree, tensors: Tree) -> None:
        super().__init__(tensors)
        self._stored = stored
        self._tensors = tuple(tensors.items())

    @property
    def stored_tree(self) -> StoredTree | None:
        """The stored tree that this one came from; None once this one has other tensors, or in another order."""
        same = len(self) == len(self._tensors) and all(
            name == other and array is loaded
            for (name, array), (other, loaded) in zip(self.items(), self._tensors, strict=True)
        )
        return self._stored if same else None

    @override
    def __reduce__(self) -> tuple[type[Tree], tuple[Tree]]:
        """A copy is a tree as any other: its arrays can be written to."""
        return dict, (dict(self),)


def stored_of(tree: Mapping[str, np.ndarray]) -> StoredTree | None:
    """The tree's file, where it has one."""
    if isinstance(tree, LoadedTree):
        return tree.stored_tree
    return tree if isinstance(tree, StoredTree) else None


@dataclass(frozen=True)
class State:
    """Explicit state of one half of a method.

    :param trees: name -> tensors by their names; those that were kept are read-only (`KeptTree`).
    :param values: name -> anything that JSON can say; numbers of NumPy and PyTorch become Python's.
    """

    trees: Mapping[str, Mapping[str, np.ndarray]] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)

    def tree(self, name: str) -> Tree:
        """Tensors of a tree in a dictionary of the caller's own; arrays of one that was kept are read-only."""
        try:
            tree = self.trees[name]
        except KeyError:
            raise MethodError(
                f"state has no tree {name!r}; it has {sorted(self.trees)}: the method must store it first"
            ) from None
        return tree.load() if isinstance(tree, KeptTree) else dict(tree)

    def with_trees(self, **trees: Mapping[str, np.ndarray]) -> State:
        """A state with some trees of this one replaced."""
        return State({**self.trees, **trees}, self.values)

    def with_values(self, **values: Any) -> State:
        """A state with some values of this one replaced."""
        return State(self.trees, {**self.values, **values})

    def store(self, blobs: Path, algorithm: str = SHA256) -> State:
        """Write every tree that is still in memory to `blobs`; returns the state that refers to the files.

        :param algorithm: the hash that names new files.
        """
        trees = {name: self._store_tree(tree, blobs, algorithm) for name, tree in self.trees.items()}
        return State(trees, self.values)

    @staticmethod
    def _store_tree(tree: Mapping[str, np.ndarray], blobs: Path, algorithm: str) -> StoredTree:
        if (stored := stored_of(tree)) is not None:
            if not (blobs / stored.ref.digest).exists():  # a file of the person's own, kept as it is
                copy_blob(stored.path, stored.ref, blobs)
                return StoredTree(stored.ref, blobs / stored.ref.digest)
            return stored
        ref = write_blob(dict(tree), blobs, algorithm)
        return StoredTree(ref, blobs / ref.digest)

    def in_memory(self) -> State:
        """The state as storing and reading it would give it, without files: read-only arrays, values of JSON."""
        trees = {
            name: tree if isinstance(tree, KeptTree) else HeldTree(tree) for name, tree in self.trees.items()
        }
        return State(trees, json.loads(self._values_text()))

    def refs(self) -> dict[str, BlobRef]:
        """References of the stored trees."""
        return {name: tree.ref for name, tree in self.trees.items() if isinstance(tree, StoredTree)}

    def to_json(self) -> dict[str, Any]:
        """References and values of a stored state."""
        trees = {name: {"digest": ref.digest, "length": ref.length} for name, ref in self.refs().items()}
        return {"trees": trees, "values": json.loads(self._values_text())}

    def _values_text(self) -> str:
        """The values in JSON.

        :raises MethodError: when they hold anything that JSON cannot say.
        """
        try:
            return json.dumps(dict(self.values), allow_nan=False, default=_json_number)
        except (TypeError, ValueError) as error:
            raise MethodError(
                f"the method's state: values hold what JSON cannot say ({error}); keep finite numbers, texts and "
                "lists in State.values, and arrays in State.trees"
            ) from error

    @classmethod
    def from_json(cls, document: Mapping[str, Any], blobs: Path) -> State:
        """The state whose trees lie in `blobs`."""
        trees = {
            name: StoredTree(BlobRef(ref["digest"], ref["length"]), blobs / ref["digest"])
            for name, ref in document["trees"].items()
        }
        return cls(trees, document["values"])


def _json_number(value: object) -> object:
    """A number that JSON can say in place of one of NumPy's or PyTorch's.

    :raises TypeError: when it is no number.
    """
    number = plain_number(value)
    if number is value:
        raise TypeError(f"{type(value).__name__} is no number, text or list")
    return number


def as_stored(array: np.ndarray) -> np.ndarray:
    """The array as a file gives it back: contiguous and read-only."""
    if array.flags.c_contiguous and not array.flags.writeable:
        return array
    fixed = np.ascontiguousarray(array).reshape(array.shape).view()
    fixed.flags.writeable = False
    return fixed


def require_finite(before: State, after: State) -> None:
    """Check that every tensor that is new holds finite numbers only.

    :raises MethodError: naming one that does not.
    """
    for name, tree in after.trees.items():
        if stored_of(tree) is not None or tree is before.trees.get(name):
            continue
        for tensor, array in tree.items():
            if array.dtype.kind == "f" and not _is_finite(array):
                raise MethodError(
                    f"the aggregator's {name}: tensor {tensor!r} holds NaN or infinity: training diverged; lower the "
                    "learning rates in spec.training and spec.method.config, or set spec.training.gradientClip"
                )


def _is_finite(array: np.ndarray) -> bool:
    # The sum of an array with a value that is not finite is not finite either, and cheaper than testing each value.
    with np.errstate(all="ignore"):
        return bool(np.isfinite(array.sum()) or np.isfinite(array).all())
