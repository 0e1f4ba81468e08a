"""Cross-entropy and accuracy over the places of an example: pixels of an image, tokens of a sequence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from fedsilo.errors import DataInvalid

if TYPE_CHECKING:
    from torch import Tensor

UNSCORED_TARGET = -100
"""Target of a place that counts neither in the loss nor in scores: PyTorch's `ignore_index`."""


def require_scored_place(targets: np.ndarray, what: str) -> None:
    """Return if a dataset has at least one place to learn from.

    :param what: which values say nothing, for the message.
    :raises DataInvalid: every place of every example says nothing.
    """
    if targets.size and (targets == UNSCORED_TARGET).all():
        raise DataInvalid(f"every target is {what}, so that there is nothing to learn; correct the targets")


def places_loss(logits: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
    """Cross-entropy averaged over places; 0 where a batch has none that is scored, and not 0 / 0.

    :param logits: (n, classes, *places).
    :param targets: (n, *places).
    """
    from torch.nn import functional

    if not (targets != UNSCORED_TARGET).any():
        return logits.sum() * 0
    return functional.nll_loss(
        _by_place(logits), targets.flatten(), weight=weights, ignore_index=UNSCORED_TARGET
    )


def _by_place(logits: Tensor) -> Tensor:
    """Logarithms of probabilities (n places, classes), at least in single precision.

    `cross_entropy` of several places to an example has no deterministic form on a GPU; that of single places has one,
    and the same bytes on a CPU.

    :param logits: (n, classes, *places).
    """
    import torch
    from torch.nn import functional

    dtype = torch.float32 if logits.dtype.itemsize < torch.float32.itemsize else None
    return functional.log_softmax(logits, dim=1, dtype=dtype).movedim(1, -1).flatten(0, -2)


def places_divisor(targets: Tensor, weights: Tensor | None = None) -> Tensor:
    """What `places_loss` divides by: the number of places that are scored, or the sum of the weights of their classes.

    :param targets: (n, *places).
    """
    scored = targets != UNSCORED_TARGET
    return scored.sum().float() if weights is None else weights[targets[scored]].sum()


def places_scores(logits: Tensor, targets: Tensor) -> Mapping[str, Tensor]:
    """Accuracy and loss of each example over the places that are scored; shapes as in `places_loss`.

    An example without such a place counts as wholly right with loss 0.
    """
    from torch.nn import functional

    scored = (targets != UNSCORED_TARGET).flatten(1)
    number = scored.sum(dim=1)
    right = (logits.argmax(dim=1) == targets).flatten(1).sum(dim=1)
    each = functional.nll_loss(
        _by_place(logits.float()), targets.flatten(), reduction="none", ignore_index=UNSCORED_TARGET
    ).view_as(targets)
    accuracy = right.double() / number.clamp(min=1)
    return {
        "accuracy": accuracy.masked_fill(number == 0, 1.0),
        "loss": each.flatten(1).sum(dim=1) / number.clamp(min=1),
    }
