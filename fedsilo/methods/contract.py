"""From a declared step to the payload contract: symbolic shapes become numbers, a payload becomes blocks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from fedsilo.methods.interface import Payload, Step
from fedsilo.wire import Contract, ExpectedBlock, ModelSignature


def contract_of(step: Step, signature: ModelSignature, dimensions: Mapping[str, int]) -> Contract:
    """The contract of a step, tensor by tensor.

    :param dimensions: value of each symbolic dimension.
    """
    blocks = tuple(block for payload in step.payloads for block in _blocks(payload, signature, dimensions))
    return Contract(blocks, step.metrics, {name: step.range_of(name) for name in step.metrics})


def _blocks(
    payload: Payload, signature: ModelSignature, dimensions: Mapping[str, int]
) -> Iterator[ExpectedBlock]:
    if payload.name is None:
        yield from (ExpectedBlock(payload.kind, t.name, t.shape, t.dtype) for t in signature.tensors)
        return
    shape = tuple(dimensions[size] if isinstance(size, str) else size for size in payload.shape)
    if not payload.per_class:
        yield ExpectedBlock(payload.kind, payload.name, shape, payload.dtype)
        return
    for label in range(dimensions["classes"]):
        yield ExpectedBlock(payload.kind, f"{payload.name}/{label}", shape, payload.dtype, label)
