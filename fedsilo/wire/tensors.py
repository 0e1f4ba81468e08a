"""Tensors as the wire knows them: a name, a shape, a dtype and little-endian bytes in C order.

Nothing here needs torch, so the guard and the aggregator's service can describe and check a model that only
the trainer can build.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from fedsilo.errors import Problem
from fedsilo.files.digests import SHA256, hasher
from fedsilo.wire.fields import MAX_INTEGER, TOKEN, FieldReader

Tree = dict[str, np.ndarray]

DTYPES: dict[str, np.dtype] = {
    "float16": np.dtype("<f2"),
    "float32": np.dtype("<f4"),
    "float64": np.dtype("<f8"),
    "int32": np.dtype("<i4"),
    "int64": np.dtype("<i8"),
    "uint8": np.dtype("u1"),
    "int8": np.dtype("i1"),
    "uint16": np.dtype("<u2"),
    "uint32": np.dtype("<u4"),
    "uint64": np.dtype("<u8"),
    "bool": np.dtype("?"),
}
MAX_TENSOR_BYTES = 1 << 40
"""No tensor is as large; whatever claims to be is refused before anything is made for it."""

MAX_DIMENSIONS = 8

_CHUNK_BYTES = 1 << 20
_INFINITY, _SIGN = 0x7C00, 0x8000  # of float16, as bits


@dataclass(frozen=True)
class TensorSpec:
    """What one tensor looks like.

    :param name: 1 to 200 printable ASCII characters without whitespace.
    :param shape: at most 8 sizes; () is a scalar, and a size of 0 is allowed.
    :param dtype: one of `DTYPES`.
    :raises Problem: `wrong-dtype`, `too-long` beyond `MAX_TENSOR_BYTES` bytes, else `malformed`.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str

    def __post_init__(self) -> None:
        if not TOKEN.fullmatch(self.name):
            raise Problem(
                "malformed",
                f"tensor {self.name[:80]!r}: use 1 to 200 printable ASCII characters without whitespace",
            )
        if self.dtype not in DTYPES:
            raise Problem(
                "wrong-dtype", f"tensor {self.name}: dtype is {self.dtype}; use {', '.join(DTYPES)}"
            )
        if len(self.shape) > MAX_DIMENSIONS or not all(0 <= size <= MAX_INTEGER for size in self.shape):
            raise Problem(
                "malformed",
                f"tensor {self.name}: shape is {self.shape}; use at most {MAX_DIMENSIONS} sizes from 0",
            )
        if self.nbytes > MAX_TENSOR_BYTES:
            raise Problem(
                "too-long",
                f"tensor {self.name}: {self.nbytes} bytes; {MAX_TENSOR_BYTES} is the most",
            )

    @property
    def size(self) -> int:
        """Number of elements in the tensor."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Size of the tensor's payload in bytes."""
        return self.size * DTYPES[self.dtype].itemsize


@dataclass(frozen=True)
class ModelSignature:
    """What a model looks like, without torch: enough to derive every contract from.

    :param tensors: in state-dict order.
    :param classes: how many classes of examples the model tells apart; 0 where it learns something else.
    :param feature: width of the classifier's input, that is, of the encoder's output; 0 where it has no such parts.
    """

    tensors: tuple[TensorSpec, ...]
    classes: int = 0
    feature: int = 0

    def to_dict(self) -> dict[str, object]:
        """Plain values for JSON or msgpack, without what is 0; `from_dict` reads them back."""
        tensors = [{"name": t.name, "shape": list(t.shape), "dtype": t.dtype} for t in self.tensors]
        sizes = {"classes": self.classes, "feature": self.feature}
        return {"tensors": tensors, **{name: size for name, size in sizes.items() if size}}

    @classmethod
    def from_dict(cls, value: object) -> ModelSignature:
        """Read what `to_dict` wrote, and nothing else.

        :raises Problem: as `TensorSpec`, and `malformed` for any other field, type or a name given twice.
        """
        what = "model signature"
        sizes = [name for name in ("classes", "feature") if not isinstance(value, dict) or name in value]
        fields = FieldReader(what, value, ("tensors", *sizes), ordered=False)
        tensors = []
        for index, item in enumerate(fields.items("tensors")):
            tensor = FieldReader(f"{what}: tensors[{index}]", item, ("name", "shape", "dtype"), ordered=False)
            tensors.append(TensorSpec(tensor.text("name"), tensor.shape("shape"), tensor.text("dtype")))
        refuse_twice(what, (tensor.name for tensor in tensors))
        return cls(tuple(tensors), **{name: fields.integer(name, 1) for name in sizes})


def refuse_twice(what: str, names: Iterable[str]) -> None:
    """Raise `malformed` when a name is given twice."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise Problem("malformed", f"{what}: {name} is given twice; names must differ")
        seen.add(name)


def spec_of(name: str, array: np.ndarray) -> TensorSpec:
    """The spec of an array as it is.

    :raises Problem: as `TensorSpec`.
    """
    return TensorSpec(name, array.shape, array.dtype.name)


def specs_of(tree: Mapping[str, np.ndarray]) -> tuple[TensorSpec, ...]:
    """The specs of all arrays of a tree, in its order."""
    return tuple(spec_of(name, array) for name, array in tree.items())


def raw_bytes(array: np.ndarray) -> np.ndarray:
    """The little-endian bytes of an array in C order, flat, without a copy where it already has that form."""
    little = np.ascontiguousarray(array, dtype=DTYPES[array.dtype.name])
    return little.reshape(-1).view(np.uint8)


class BlockContent:
    """Hash and inspect the bytes of one tensor as they pass, in pieces of any size.

    Each byte is looked at once, so that a writer may take it from memory that others can still change.

    :param algorithm: the hash.
    :ivar fault: the first value that the tensor may not hold, or None: NaN or infinity (`not-finite`), or a
        bool that is neither 0 nor 1 (`malformed`).
    """

    def __init__(self, name: str, dtype: str, algorithm: str = SHA256) -> None:
        self.fault: Problem | None = None
        self._name = name
        self._dtype = DTYPES[dtype]
        self._hash = hasher(algorithm)
        self._part = b""  # the beginning of an item that the last piece cut through

    def update(self, piece: memoryview) -> None:
        """Take the next bytes."""
        self._hash.update(piece)
        if self.fault is not None or self._dtype.kind not in "fb":
            return
        if self._part:
            missing = self._dtype.itemsize - len(self._part)
            self._part += bytes(piece[:missing])
            piece = piece[missing:]
            if len(self._part) < self._dtype.itemsize:
                return
            self._inspect(memoryview(self._part))
        whole = len(piece) - len(piece) % self._dtype.itemsize
        for start in range(0, whole, _CHUNK_BYTES):
            self._inspect(piece[start : min(start + _CHUNK_BYTES, whole)])
        self._part = bytes(piece[whole:])

    def digest(self) -> bytes:
        """The digest of all bytes so far, 32 bytes."""
        return self._hash.digest()

    def _inspect(self, piece: memoryview) -> None:
        self.fault = _fault(self._name, self._dtype, piece)


def require_finite(tree: Mapping[str, np.ndarray]) -> None:
    """Return if every tensor holds only what may leave a silo.

    :raises Problem: as `BlockContent.fault`.
    """
    for name, array in tree.items():
        if array.dtype.kind in "fb" and (fault := _fault(name, array.dtype, raw_bytes(array).data)):
            raise fault


def _fault(name: str, dtype: np.dtype, piece: memoryview) -> Problem | None:
    if dtype.kind == "b" and np.frombuffer(piece, np.uint8).max(initial=0) > 1:
        return Problem("malformed", f"block {name}: a bool is neither 0 nor 1; send only these")
    if dtype.kind == "f" and not _is_finite(dtype, piece):
        text = f"block {name}: holds NaN or infinity; lower the learning rate or clip gradients"
        return Problem("not-finite", text)
    return None


def _is_finite(dtype: np.dtype, piece: memoryview) -> bool:
    if dtype.itemsize > 2:
        return bool(np.isfinite(np.frombuffer(piece, dtype)).all())
    # NumPy converts every float16 for that, at 1.4 GB/s where single precision has 40. By their bits, infinity and NaN
    # come after all finite numbers: the positive ones as integers with a sign, the negative ones as those without.
    positive = np.frombuffer(piece, "<i2").max(initial=0) < _INFINITY
    return bool(positive and np.frombuffer(piece, "<u2").max(initial=0) < _SIGN + _INFINITY)
