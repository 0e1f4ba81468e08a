"""What differences are taken from: the tensor of the same name that the silo's task handed out."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fedsilo.encodings.encoding import Encoding
from fedsilo.errors import MethodError
from fedsilo.wire import ExpectedBlock, TensorSpec

FIRST_BASE = "model"
"""The tree of a task that is looked into first; the others follow in the order of their names."""


def base_of(
    tensor: ExpectedBlock, trees: Mapping[str, Mapping[str, np.ndarray]], encoding: Encoding
) -> np.ndarray | None:
    """The tensor of this name, shape and dtype in the task's trees; None where they have none: it is sent as it is.

    :param trees: of the method, by their names in the task.
    :raises MethodError: when the encoding leaves out most numbers, which makes sense of differences only.
    """
    found = handed_out(tensor.spec, trees)
    if found is None and encoding.sparse:
        raise MethodError(
            f"spec.communication.upload.encoding: {encoding.name!r}: the task hands out no tensor {tensor.name!r} "
            "that a difference could be taken from; use int8, bfloat16 or float16"
        )
    return found


def handed_out(tensor: TensorSpec, trees: Mapping[str, Mapping[str, np.ndarray]]) -> np.ndarray | None:
    """The tensor of this name, shape and dtype in the task's trees; None where they have none."""
    for name in sorted(trees, key=lambda name: (name != FIRST_BASE, name)):
        found = trees[name].get(tensor.name)
        if found is not None and found.shape == tensor.shape and found.dtype == tensor.dtype:
            return found
    return None
