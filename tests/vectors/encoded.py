"""A tensor in each encoding of `spec.communication`: its parts, and what they decode to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from fedsilo.encodings.encoding import Encoding
from fedsilo.encodings.halves import BFloat16Encoding, Float16Encoding
from fedsilo.encodings.int8 import Int8Encoding
from fedsilo.encodings.topk import TopKEncoding
from fedsilo.encodings.zstd import ZstdEncoding
from fedsilo.wire import TensorSpec

VALUES = np.tile((np.arange(40, dtype=np.float32) - 20) ** 3 / np.float32(512), 2).reshape(8, 10)
TENSOR = TensorSpec("w", VALUES.shape, "float32")

FRAME = bytes.fromhex(
    "28b52ffd604000950300d2061820b0358d0158c8440bb7e5de163c0b3b52698ed520c8c2b2e5de163c2bb9d089146bad8588884a2995521204"
    "000f0885d69a73ceedeeee7bef3dc41876982589a8d1e261a7fe9ab3a7d0262272619c07036189ca901e27e3ba8e271f0aad607e050008ca82"
    "a0d42f557e80538c022c"
)
"""The tensor itself in one frame, as it was once made: another version of Zstandard may make other bytes."""


def encodings() -> list[dict[str, Any]]:
    """Parts of a tensor in each encoding, in hexadecimal and C order, little-endian."""
    found = [
        _encoding_entry(encoding, encoding.encode(VALUES))
        for encoding in (BFloat16Encoding(), Float16Encoding(), TopKEncoding(0.1))
    ]
    found += [
        _encoding_entry(encoding, encoding.encode(VALUES))
        for encoding in (Int8Encoding(16), ZstdEncoding(Int8Encoding(16)))
    ]
    frame: list[np.ndarray] = [np.array([len(FRAME)], np.uint32), np.frombuffer(FRAME, np.uint8)]
    plain = {"encoding": "float32", "compression": "zstd"}
    return [*found, plain | _parts(("w.frames", "w"), frame) | {"decoded": VALUES.tobytes().hex()}]


def _encoding_entry(encoding: Encoding, parts: Sequence[np.ndarray]) -> dict[str, Any]:
    inner = encoding.inner if isinstance(encoding, ZstdEncoding) else encoding
    more = {"compression": "zstd"} if isinstance(encoding, ZstdEncoding) else {}
    names = [spec.name for spec in encoding.parts(TENSOR)]
    decoded = {"decoded": encoding.decode(parts, VALUES.shape).tobytes().hex()}
    return {"encoding": inner.name, **asdict(inner)} | more | _parts(names, parts) | decoded


def _parts(names: Sequence[str], parts: Sequence[np.ndarray]) -> dict[str, Any]:
    return {
        "parts": [
            {"name": name, "dtype": part.dtype.name, "shape": list(part.shape), "bytes": part.tobytes().hex()}
            for name, part in zip(names, parts, strict=True)
        ]
    }
