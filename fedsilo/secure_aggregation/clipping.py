"""Norm clipping where nobody but the silo itself sees its update: its guard clips before it masks."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from fedsilo.errors import Problem
from fedsilo.wire.tensors import DTYPES, TensorSpec

Tensor = Callable[[str], np.ndarray]
"""Name -> values."""


def clipped(
    tensor: Tensor, specs: Sequence[TensorSpec], sent: Mapping[str, np.ndarray], norm: float
) -> Tensor:
    """The model w + min(1, norm / ||x - w||) (x - w) of a silo's model x.

    The norm is over all tensors of floating-point numbers; of a model that is clipped, the others are those of w.

    :param tensor: x.
    :param specs: of its tensors.
    :param sent: w, the model that the silo was sent.
    :param norm: L2 norm that the change keeps at most.
    :raises Problem: `wrong-shape` where w is another model.
    """
    squares = 0.0
    for spec in specs:
        if spec.name not in sent or tuple(sent[spec.name].shape) != spec.shape:
            raise Problem("wrong-shape", f"tensor {spec.name}: the silo was sent none of this shape")
        if _is_float(spec):
            change = _change(tensor(spec.name), sent[spec.name])
            squares += float(np.dot(change, change))
    length = math.sqrt(squares)
    if length <= norm:
        return tensor
    floats = {spec.name for spec in specs if _is_float(spec)}
    part = norm / length

    def of(name: str) -> np.ndarray:
        if name not in floats:
            return sent[name]
        own, given = tensor(name), sent[name]
        return np.asarray(given + (part * _change(own, given)).reshape(own.shape)).astype(own.dtype)

    return of


def _is_float(spec: TensorSpec) -> bool:
    return DTYPES[spec.dtype].kind == "f"


def _change(own: np.ndarray, sent: np.ndarray) -> np.ndarray:
    return (own.astype(np.float64) - sent.astype(np.float64)).reshape(-1)
