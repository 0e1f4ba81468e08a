"""From a declared step to the payload contract: symbolic shapes become numbers, a payload becomes blocks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from fedsilo.api.communication import UploadSpec
from fedsilo.encodings.registry import with_encoding
from fedsilo.errors import MethodError
from fedsilo.methods.building_blocks.buffers import is_statistic
from fedsilo.methods.interface import Payload, Step
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
        required=frozenset(step.required),
        limits=step.limits,
        samples=step.samples,
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


def encoded_contract(contract: Contract, upload: UploadSpec) -> Contract:
    """The contract in which the model's learned tensors are sent as the job says."""
    return with_encoding(contract, upload, _learned(contract))


def learned_tensors(signature: ModelSignature, contract: Contract) -> dict[str, tuple[int, ...]]:
    """Names and shapes of the tensors that a task of this contract hands out as the job says."""
    own = {t.name: t.shape for t in signature.tensors if _is_learned(t.name, t.dtype)}
    learned = _learned(contract)
    return own | {block.name: block.shape for block in contract.tensors if block.name in learned}


def _learned(contract: Contract) -> frozenset[str]:
    """Tensors of the model that every update has; one of a class may be left out, and is held to its examples."""
    return frozenset(
        block.name
        for block in contract.tensors
        if block.kind == "model" and block.label is None and _is_learned(block.name, block.dtype)
    )


def _is_learned(name: str, dtype: str) -> bool:
    """Whether a tensor of a model may lose precision on its way.

    BatchNorm's statistics may not: a variance that is off by an error of others could become negative.
    """
    return dtype == "float32" and not is_statistic(name)
