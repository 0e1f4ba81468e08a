"""The encodings by the names that manifests and contracts have for them."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Final

from fedsilo.api.communication import DownloadSpec, UploadSpec
from fedsilo.encodings.encoding import Encoding
from fedsilo.encodings.float32 import Float32Encoding
from fedsilo.encodings.halves import BFloat16Encoding, Float16Encoding
from fedsilo.encodings.int8 import Int8Encoding
from fedsilo.encodings.topk import TopKEncoding
from fedsilo.encodings.zstd import ZstdEncoding
from fedsilo.wire import Contract, EncodedTensor, ExpectedBlock

ENCODINGS: Final[dict[str, Encoding]] = {
    encoding.name: encoding
    for encoding in (Float32Encoding(), BFloat16Encoding(), Float16Encoding(), Int8Encoding(), TopKEncoding())
}
"""Each with its own defaults."""

OPTIONS: Final = ("block", "fraction")

DELTA: Final = "delta"

COMPRESSION: Final = "compression"


def encoding_of(spec: UploadSpec | DownloadSpec) -> Encoding | None:
    """The encoding that a direction of `spec.communication` names; None where tensors are sent as they are."""
    if not spec.is_encoded:
        return None
    given = spec.model_dump(include=set(OPTIONS), exclude_none=True)
    inner = replace(ENCODINGS[spec.encoding], **given)
    return inner if spec.compression is None else ZstdEncoding(inner)


def encoding_in(contract: Contract) -> Encoding | None:
    """The encoding that the contract's tensors are sent in; None where all are sent as they are."""
    if contract.encoding is None:
        return None
    options = {name: contract.encoding[name] for name in OPTIONS if name in contract.encoding}
    inner = replace(ENCODINGS[str(contract.encoding["name"])], **options)
    return ZstdEncoding(inner) if COMPRESSION in contract.encoding else inner


def with_encoding(contract: Contract, spec: UploadSpec, tensors: frozenset[str]) -> Contract:
    """The contract in which these tensors are sent in the encoding, where there is one.

    :raises Problem: when the name of a part would be too long, or a tensor is too large for the encoding.
    """
    encoding = encoding_of(spec)
    if encoding is None or not tensors:
        return contract
    blocks: list[ExpectedBlock] = []
    encoded: list[EncodedTensor] = []
    for block in contract.blocks:
        if block.name not in tensors:
            blocks.append(block)
            continue
        parts = [ExpectedBlock(block.kind, p.name, p.shape, p.dtype) for p in encoding.parts(block.spec)]
        blocks += [*parts[:-1], replace(parts[-1], at_most=encoding.compressed)]
        encoded.append(EncodedTensor(block, tuple(part.name for part in parts)))
    inner = encoding.inner if isinstance(encoding, ZstdEncoding) else encoding
    described = {"name": inner.name, **asdict(inner), DELTA: spec.sends_differences}
    described |= {COMPRESSION: spec.compression} if spec.compression else {}
    return replace(contract, blocks=tuple(blocks), encoding=described, encoded=tuple(encoded))
