"""State of a method: named trees of tensors and plain values, nothing hidden.

A tree is held in memory while it is new and by reference to a content-addressed file once it is stored; code
that reads a state sees no difference. Trees that a round does not change are therefore not written again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from typing_extensions import override

from fedsilo.errors import MethodError
from fedsilo.files.digests import SHA256
from fedsilo.wire import BlobRef, Scalar, Tree, copy_blob, open_blob, write_blob

__all__ = [
    "LoadedTree",
    "Scalar",
    "State",
    "StoredTree",
    "Tree",
    "as_stored",
    "require_finite",
    "stored_of",
]


@dataclass(frozen=True)
class StoredTree:
    """A tree in a file named by its digest."""

    ref: BlobRef
    path: Path

    def load(self) -> LoadedTree:
        """The tree's tensors as memory-mapped, read-only arrays."""
        return LoadedTree(self, open_blob(self.path).tree())


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


def stored_of(tree: Tree | StoredTree) -> StoredTree | None:
    """The tree's file, where it has one."""
    if isinstance(tree, LoadedTree):
        return tree.stored_tree
    return tree if isinstance(tree, StoredTree) else None


@dataclass(frozen=True)
class State:
    """Explicit state of one half of a method.

    :param trees: name -> tensors.
    :param values: name -> anything that JSON can say.
    """

    trees: Mapping[str, Tree | StoredTree] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)

    def tree(self, name: str) -> Tree:
        """Tensors of a tree, mapped read-only where it is stored."""
        try:
            tree = self.trees[name]
        except KeyError:
            raise MethodError(
                f"state has no tree {name!r}; it has {sorted(self.trees)}: the method must store it first"
            ) from None
        return tree.load() if isinstance(tree, StoredTree) else tree

    def with_trees(self, **trees: Tree | StoredTree) -> State:
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
    def _store_tree(tree: Tree | StoredTree, blobs: Path, algorithm: str) -> StoredTree:
        if (stored := stored_of(tree)) is not None:
            if not (blobs / stored.ref.digest).exists():  # a file of the person's own, kept as it is
                copy_blob(stored.path, stored.ref, blobs)
                return StoredTree(stored.ref, blobs / stored.ref.digest)
            return stored
        assert not isinstance(tree, StoredTree)
        ref = write_blob(tree, blobs, algorithm)
        return StoredTree(ref, blobs / ref.digest)

    def in_memory(self) -> State:
        """The state as storing and reading it would give it, without files: read-only arrays, values of JSON."""
        trees = {
            name: tree
            if isinstance(tree, StoredTree)
            else {key: as_stored(array) for key, array in tree.items()}
            for name, tree in self.trees.items()
        }
        return State(trees, json.loads(self._values_text()))

    def refs(self) -> dict[str, BlobRef]:
        """References of the stored trees."""
        return {name: tree.ref for name, tree in self.trees.items() if isinstance(tree, StoredTree)}

    def to_json(self) -> dict[str, Any]:
        """References and values of a stored state."""
        trees = {name: {"digest": ref.digest, "length": ref.length} for name, ref in self.refs().items()}
        self._values_text()
        return {"trees": trees, "values": dict(self.values)}

    def _values_text(self) -> str:
        """The values in JSON.

        :raises MethodError: when they hold anything that JSON cannot say.
        """
        try:
            return json.dumps(dict(self.values), allow_nan=False)
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
        assert not isinstance(tree, StoredTree)
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
