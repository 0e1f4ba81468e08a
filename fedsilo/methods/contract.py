"""The payload contract of a step, derived from the method's declaration and the model's signature.

Guard and aggregator each derive it for themselves; that both digests agree is checked on every task and update.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedsilo.errors import MethodError
from fedsilo.methods.interface import (
    EVALUATE,
    NAMED_PERSONAL_ACCURACY,
    PERSONAL_ACCURACY,
    Method,
    Payload,
    Step,
)
from fedsilo.methods.state import Scalar
from fedsilo.wire import Contract, ExpectedBlock, ModelSignature

EVALUATION = Step(metrics=("accuracy", "loss"))


def evaluation(method: Method, config: Any) -> Step:
    """What a silo may say of the models that it scores."""
    if not method.personalises(config):
        return EVALUATION
    return Step(metrics=(*EVALUATION.metrics, PERSONAL_ACCURACY, NAMED_PERSONAL_ACCURACY))


def step_of(method: Method, step: str, config: Any) -> Step:
    """The declared step, or the evaluation that every method has.

    :raises MethodError: when the method does not declare it.
    """
    steps = method.steps(config)
    if step in steps:
        return steps[step]
    if step == EVALUATE:
        return evaluation(method, config)
    raise MethodError(f"method {method.name} declares no step {step!r}; it declares {sorted(steps)}")


def derive_contract(
    method: Method, step: str, signature: ModelSignature, config: Any, settings: Mapping[str, Scalar]
) -> Contract:
    """What a silo may send in answer to a task of this step, tensor by tensor."""
    dimensions = method.dimensions(signature, config, settings)
    declared = step_of(method, step, config)
    blocks = tuple(
        block for payload in declared.payloads for block in _blocks(payload, signature, dimensions)
    )
    return Contract(blocks, declared.metrics)


def _blocks(payload: Payload, signature: ModelSignature, dimensions: Any) -> list[ExpectedBlock]:
    if payload.name is None:
        return [ExpectedBlock(payload.kind, t.name, t.shape, t.dtype) for t in signature.tensors]
    shape = tuple(dimensions[size] if isinstance(size, str) else size for size in payload.shape)
    if not payload.per_class:
        return [ExpectedBlock(payload.kind, payload.name, shape, payload.dtype)]
    return [
        ExpectedBlock(payload.kind, f"{payload.name}/{label}", shape, payload.dtype, label)
        for label in range(signature.classes)
    ]
