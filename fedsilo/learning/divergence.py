"""What training that ends in NaN or infinity is told as."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fedsilo.errors import MethodError
from fedsilo.learning.constants import require_constants


def divergence_message(lr: float) -> str:
    """The message for training that ends in NaN or infinity, with the remedy."""
    return (
        f"training diverged at learning rate {lr:g}; lower spec.training.optimizer.learningRate or set "
        "spec.training.gradientClip"
    )


def require_finite(losses: Tensor, model: nn.Module, lr: float) -> None:
    """Return if all losses of the steps so far and all of the model's tensors are finite, and its constants unchanged.

    :raises MethodError: naming the step, or the tensor.
    """
    require_constants(model)
    remedy = divergence_message(lr)
    state = model.state_dict()
    # A sum with a NaN or an infinity is not finite, and costs less than testing every number. A sum that merely
    # overflows is examined below.
    sums = [t.sum() for t in (losses, *state.values()) if t.is_floating_point()]
    if torch.stack(sums).sum().isfinite():
        return
    finite = losses.isfinite()
    if not finite.all():
        step = int(finite.long().argmin().item())
        raise MethodError(f"training: step {step + 1}: loss {losses[step].item()}: {remedy}")
    for name, finite_tensor in zip(
        state, torch.stack([t.isfinite().all() for t in state.values()]).tolist(), strict=True
    ):
        if not finite_tensor:
            raise MethodError(f"training: step {len(losses)}: tensor {name!r} is not finite: {remedy}")
