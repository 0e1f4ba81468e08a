"""From a declared step to the payload contract: symbolic shapes become numbers, a payload becomes blocks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from fedsilo.errors import MethodError
from fedsilo.methods.step import Payload, Step
from fedsilo.payload_kinds import KINDS
from fedsilo.wire import Contract, ExpectedBlock, ModelSignature
from fedsilo.wire.combine import CountedMean


def contract_of(step: Step, signature: ModelSignature, dimensions: Mapping[str, int]) -> Contract:
    """The contract of a step, tensor by tensor.

    :param dimensions: value of each symbolic dimension.
    :raises MethodError: a payload of no payload kind.
    """
    if foreign := [payload.kind for payload in step.payloads if payload.kind not in KINDS]:
        # The kind of what guards alone send is none that a silo's policy is asked about.
        raise MethodError(f"payload: kind is {foreign[0]!r}; use one of {', '.join(KINDS)}")
    blocks = tuple(block for payload in step.payloads for block in _blocks(payload, signature, dimensions))
    return Contract(
        blocks,
        step.names,
        {metric.name: metric.limits for metric in step.metrics},
        required=frozenset(step.required_metrics),
        limits=step.limits,
        samples=step.samples,
        alike=frozenset(metric.name for metric in step.metrics if metric.is_unweighted),
    )


def _blocks(
    payload: Payload, signature: ModelSignature, dimensions: Mapping[str, int]
) -> Iterator[ExpectedBlock]:
    if payload.name is None:
        for t in signature.tensors:
            yield ExpectedBlock(payload.kind, t.name, t.shape, t.dtype, combine=payload.combine)
        return
    shape = tuple(dimensions[size] if isinstance(size, str) else size for size in payload.shape)
    if not payload.per_class:
        yield ExpectedBlock(payload.kind, payload.name, shape, payload.dtype, combine=payload.combine)
        return
    for label in range(dimensions["classes"]):
        combine = payload.combine
        if isinstance(combine, CountedMean):
            combine = CountedMean(f"{combine.count}/{label}")
        yield ExpectedBlock(
            payload.kind, f"{payload.name}/{label}", shape, payload.dtype, label, combine=combine
        )
