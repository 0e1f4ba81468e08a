"""Norm clipping where nobody but the silo itself sees its update: its guard clips before it masks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from fedsilo.errors import Problem
from fedsilo.privacy.clipping import change, clip_factor
from fedsilo.secure_aggregation.parts import is_float
from fedsilo.wire.tensors import TensorSpec

Tensor = Callable[[str], np.ndarray]
"""Maps a tensor's name to its values."""


def clipped_model(
    tensor: Tensor, specs: Sequence[TensorSpec], sent: Mapping[str, np.ndarray], norm: float
) -> Tensor:
    """The model w + min(1, norm / ||x - w||) (x - w) of a silo's model x.

    The norm is over all tensors of floating-point numbers; of a model that is clipped, the others are those of w.

    :param tensor: x.
    :param specs: of its tensors; others stay as they are.
    :param sent: w, the model that the silo was sent.
    :param norm: L2 norm that the change keeps at most.
    :raises Problem: `wrong-shape` where w is another model, `not-finite`.
    """
    for spec in specs:
        if spec.name not in sent or tuple(sent[spec.name].shape) != spec.shape:
            raise Problem("wrong-shape", f"tensor {spec.name}: the silo was sent none of this shape")
    names = {spec.name for spec in specs}
    floats = [spec.name for spec in specs if is_float(spec.dtype)]
    factor = clip_factor(((tensor(name), sent[name]) for name in floats), norm)
    if factor == 1:
        return tensor

    def of(name: str) -> np.ndarray:
        if name not in names:
            return tensor(name)
        if name not in floats:
            return sent[name]
        own, given = tensor(name), sent[name]
        return np.asarray(given + factor * change(own, given)).astype(own.dtype)

    return of
