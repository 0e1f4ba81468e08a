"""A tree that a task hands out, with some of its tensors as parts."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fedsilo.encodings.encoding import Encoding, in_memory_parts
from fedsilo.errors import Problem
from fedsilo.wire import TensorSpec, Tree, spec_of


def encoded_tree(
    tree: Mapping[str, np.ndarray], shapes: Mapping[str, tuple[int, ...]], encoding: Encoding
) -> Tree:
    """The tree with the parts of its float32 tensors of these names and shapes in their places.

    :param encoding: one that is not sparse.
    """
    found: Tree = {}
    for name, array in tree.items():
        if array.dtype != np.float32 or shapes.get(name) != array.shape:
            found[name] = array
            continue
        specs = encoding.parts(TensorSpec(name, array.shape, "float32"))
        found |= dict(zip((spec.name for spec in specs), encoding.encode(array), strict=True))
    return found


def decoded_tree(
    tree: Mapping[str, np.ndarray], shapes: Mapping[str, tuple[int, ...]], encoding: Encoding
) -> Tree:
    """The tree that `encoded_tree` was given, as far as the encoding keeps it.

    :raises Problem: when parts are missing, have another form, or decode to no finite numbers.
    """
    found: Tree = {}
    parts: set[str] = set()
    for name, array in tree.items():
        if name in shapes and array.dtype != np.float32:
            tensor = TensorSpec(name, shapes[name], "float32")
            specs = encoding.parts(tensor)
            if not all(_is_part(spec, tree, encoding.compressed and spec is specs[-1]) for spec in specs):
                raise Problem(
                    "malformed", f"tensor {name}: is not encoded as {encoding.name}; fetch the task again"
                )
            arrays = [tree[spec.name] for spec in specs]
            encoding.check(tensor, in_memory_parts(arrays))
            found[name] = encoding.decode(arrays, tensor.shape)
            found[name].flags.writeable = False  # as those of a file
            parts.update(spec.name for spec in specs[:-1])
        else:
            found[name] = array
    return {name: array for name, array in found.items() if name not in parts}


def _is_part(spec: TensorSpec, tree: Mapping[str, np.ndarray], at_most: bool) -> bool:
    """Whether the tree has this part, or with `at_most` a shorter one."""
    if spec.name not in tree:
        return False
    found = spec_of(spec.name, tree[spec.name])
    return found == spec or (
        at_most and found.dtype == spec.dtype and len(found.shape) == 1 and found.size < spec.size
    )
