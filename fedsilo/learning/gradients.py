"""The gradient of a batch: of its parts, in mixed precision, over several processes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler

from fedsilo.errors import MethodError
from fedsilo.learning.optimizers import LOSS_SCALE, Optimizer, OptimizerState
from fedsilo.learning.plan import LocalTraining

Loss = Callable[[Any, Tensor, Tensor], Tensor]
"""(module, features, targets) -> mean loss of the batch, differentiable; some need a `Model`."""

DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16}
"""What `spec.training.precision` computes forward passes in, where that is not float32."""


class Gradients:
    """Computes gradients of batches, and has an optimiser take its steps by them.

    :param parameters: all whose gradients are to be cleared before a batch.
    :param skip_single: no part of a batch may be a single example.
    :param dense: gradients that are sparse, as an embedding's may be, become dense ones, which can be read and changed.
    :ivar steps: steps that the optimiser has taken.
    """

    def __init__(
        self,
        model: nn.Module,
        loss: Loss,
        plan: LocalTraining,
        parameters: Sequence[nn.Parameter],
        skip_single: bool,
        device: torch.device,
        dense: bool,
    ) -> None:
        self.steps = 0
        self._dense = dense
        self._model, self._loss, self._plan = model, loss, plan
        self._parameters, self._skip_single, self._device = parameters, skip_single, device
        self._scaler = _scaler(plan, device)
        # What `torch.amp.GradScaler` asks of an optimiser.
        self._scaled: Any = SimpleNamespace(param_groups=[{"params": parameters}], step=lambda: None)

    def of(self, features: Tensor, labels: Tensor, whole: Tensor) -> Tensor:
        """Put the gradients of a batch in place of all others; its loss, or this process's part of that.

        :param features: of this process's share of the batch.
        :param labels: of this process's share of the batch.
        :param whole: labels of the batch.
        """
        clear(self._parameters)
        values = []
        parts = parts_of(len(labels), self._plan, self._skip_single)
        for x, y in zip(features.tensor_split(parts), labels.tensor_split(parts), strict=True):
            with self._mixed_precision():
                value = self._loss(self._model, x, y)
                if len(y) != len(whole):
                    value = value * self._fraction(y, whole)
            (value if self._scaler is None else self._scaler.scale(value)).backward()  # type: ignore[no-untyped-call]
            values.append(value.detach())
        if self._dense:
            make_dense(self._parameters)
        self._sum()
        return values[0] if parts == 1 else torch.stack(values).sum()

    def join_empty_batch(self) -> Tensor:
        """Take part in a batch that this process has no share of."""
        clear(self._parameters)
        nothing = torch.zeros((), device=self._device)
        if self._scaler is not None:
            self._scaler.scale(nothing)  # which places the scale
        self._sum()
        return nothing

    def step(self, optimizer: Optimizer) -> bool:
        """Take an optimiser step; False where gradients in float16 overflowed, so that none is taken and the scale
        halved.
        """
        if self._scaler is None:
            optimizer.step()
            self.steps += 1
            return True
        before = self.steps

        def take() -> None:
            optimizer.step()
            self.steps += 1

        self._scaled.step = take
        self._scaler.step(self._scaled)
        self._scaler.update()
        return self.steps > before

    def state(self) -> dict[str, Any]:
        """The scale of the loss, as arrays; nothing where there is none."""
        if self._scaler is None:
            return {}
        state = self._scaler.state_dict()
        kept = torch.tensor([state["scale"], state["_growth_tracker"]], dtype=torch.float32)
        return {LOSS_SCALE: {LOSS_SCALE: kept.numpy()}}

    def _sum(self) -> None:
        """Over the processes, and only then without the scale: all see the same overflow."""
        self._plan.group.sum_gradients(self._parameters)
        if self._scaler is not None:
            self._scaler.unscale_(self._scaled)

    def _mixed_precision(self) -> AbstractContextManager[Any]:
        dtype = DTYPES.get(self._plan.precision)
        return nullcontext() if dtype is None else torch.autocast(self._device.type, dtype)

    def _fraction(self, labels: Tensor, whole: Tensor) -> Tensor | float:
        """What part of the batch's mean loss that of some of its examples is."""
        divisor = self._plan.divisor
        part, all_ = (None, None) if divisor is None else (divisor(labels), divisor(whole))
        if part is None or all_ is None:
            return len(labels) / len(whole)
        return torch.where(all_ > 0, part / all_, torch.zeros_like(part))


def parts_of(n: int, plan: LocalTraining, skip_single: bool) -> int:
    """Parts that a batch of so many examples is computed in.

    :param skip_single: no part may be a single example; then one may be an example larger than the others.
    """
    parts = math.ceil(n * plan.accumulation / plan.batch_size)
    return max(min(parts, n // 2), 1) if skip_single else parts


def clear(parameters: Iterable[nn.Parameter]) -> None:
    """Leave no gradient behind."""
    for parameter in parameters:
        parameter.grad = None


def make_dense(parameters: Iterable[nn.Parameter]) -> None:
    """Put a dense tensor in place of every gradient that is sparse."""
    for parameter in parameters:
        if parameter.grad is not None and parameter.grad.is_sparse:
            parameter.grad = parameter.grad.to_dense()


def require_steps(gradients: Gradients, tried: int) -> None:
    """Refuse a training in which no step was taken.

    :raises MethodError: gradients in float16 overflowed in every step.
    """
    if gradients.steps == 0:
        raise MethodError(
            f"training: precision: float16: gradients overflowed in all of {tried} steps, in each of which the scale "
            "of the loss is halved; take more steps in a round, set optimizer.state: keep, or use bfloat16"
        )


def _scaler(plan: LocalTraining, device: torch.device) -> GradScaler | None:
    if plan.precision != "float16":
        return None
    scaler = GradScaler(device.type)
    kept = (plan.kept or OptimizerState()).trees.get(LOSS_SCALE)
    if kept is not None:
        scale, growth_tracker = kept[LOSS_SCALE].tolist()
        state = scaler.state_dict() | {"scale": scale, "_growth_tracker": int(growth_tracker)}
        scaler.load_state_dict(state)
    return scaler
