"""A tree that a task hands out, with some of its tensors as parts."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from fedsilo.encodings.encoding import Encoding, held
from fedsilo.errors import Problem
from fedsilo.wire import TensorSpec, Tree, spec_of


def encoded_tree(tree: Mapping[str, np.ndarray], names: Collection[str], encoding: Encoding) -> Tree:
    """The tree with the parts of its float32 tensors of these names in their places.

    :param encoding: one that is not sparse.
    """
    found: Tree = {}
    for name, array in tree.items():
        if name not in names or array.dtype != np.float32:
            found[name] = array
            continue
        specs = encoding.parts(TensorSpec(name, array.shape, "float32"))
        found |= dict(zip((spec.name for spec in specs), encoding.encode(array), strict=True))
    return found


def decoded_tree(tree: Mapping[str, np.ndarray], names: Collection[str], encoding: Encoding) -> Tree:
    """The tree that `encoded_tree` was given, as far as the encoding keeps it.

    :raises Problem: when parts are missing, have another form, or decode to no finite numbers.
    """
    found: Tree = {}
    parts: set[str] = set()
    for name, array in tree.items():
        if name in names and array.dtype != np.float32:
            tensor = TensorSpec(name, array.shape, "float32")
            specs = encoding.parts(tensor)
            if any(spec.name not in tree or spec_of(spec.name, tree[spec.name]) != spec for spec in specs):
                raise Problem(
                    "malformed", f"tensor {name}: is not encoded as {encoding.name}; fetch the task again"
                )
            arrays = [tree[spec.name] for spec in specs]
            encoding.check(tensor, held(arrays))
            found[name] = encoding.decode(arrays, array.shape)
            found[name].flags.writeable = False  # as those of a file
            parts.update(spec.name for spec in specs[:-1])
        else:
            found[name] = array
    return {name: array for name, array in found.items() if name not in parts}
