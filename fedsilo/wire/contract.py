"""The contract says exactly which tensors and metrics may come back for a task.

Guard and aggregator derive it independently, from the job, the method's declaration and the model's
signature; that both derived the same one is checked by its digest in every task and every update.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from fedsilo.errors import MethodError, Problem
from fedsilo.files.digests import SHA256
from fedsilo.payload_kinds import BLOCK_KINDS
from fedsilo.wire.combine import BLOCK_MEAN, Combine
from fedsilo.wire.fields import PROTOCOL, TOKEN, pack
from fedsilo.wire.tensors import TensorSpec

METRIC_RANGE = (-1e100, 1e100)
"""Values that a metric may have unless its contract says otherwise: its square, and sums over silos, stay finite, and
every float32 is among them, such as the loss of a model that diverges."""


Limits = Callable[[int, Mapping[str, float]], Mapping[str, tuple[float, float]]]
"""(samples, metrics) of an update, each in its own range -> smallest and largest value of metrics that follow from
these."""

ANY_SAMPLES = (0, 2**63 - 1)
"""Numbers of samples that an update may state unless its contract says otherwise: those of the wire."""

HELD_KINDS = ("feature_statistics", "confusion")
"""Kinds of which a silo's policy asks something of the numbers, for which its guard holds a block in memory."""

MAX_HELD_BYTES = 1 << 30


@dataclass(frozen=True)
class ExpectedBlock:
    """One tensor that a silo sends.

    :param kind: one of `BLOCK_KINDS`; a silo's policy permits kinds one by one.
    :param label: the class whose quantity this is; such a block may be left out, for a silo withholds the
        statistics of a class of which it has too few samples, and its name ends in "/<label>".
        None: the block is required.
    :param at_most: whether fewer elements may come: the shape is one size, and that is the most.
    :param combine: how it becomes one with those of other silos where only sums are seen; no part of the digest.
    :raises MethodError: when the declaration contradicts itself.
    :raises Problem: as `TensorSpec`, and `too-long` for one of `HELD_KINDS` beyond `MAX_HELD_BYTES`.
    """

    kind: str
    name: str
    shape: tuple[int, ...]
    dtype: str
    label: int | None = None
    at_most: bool = False
    combine: Combine = BLOCK_MEAN

    def __post_init__(self) -> None:
        if self.kind not in BLOCK_KINDS:
            raise MethodError(
                f"block {self.name}: kind is {self.kind!r}; use one of {', '.join(BLOCK_KINDS)}"
            )
        if self.label is not None and (self.label < 0 or not self.name.endswith(f"/{self.label}")):
            raise MethodError(
                f"block {self.name}: label is {self.label}; end the name in '/<label>', from 0 on"
            )
        if self.spec.nbytes > MAX_HELD_BYTES and self.kind in HELD_KINDS:
            text = f"block {self.name}: {self.spec.nbytes} bytes of kind {self.kind}; {MAX_HELD_BYTES} is the most"
            raise Problem("too-long", text)

    @property
    def spec(self) -> TensorSpec:
        """Name, shape and dtype."""
        return TensorSpec(self.name, self.shape, self.dtype)

    def check(self, found: _Form) -> None:
        """Return if the block may have this shape and dtype.

        :raises Problem: `wrong-shape` or `wrong-dtype`.
        """
        shape = tuple(found.shape)
        if shape != self.shape and not (self.at_most and len(shape) == 1 and shape[0] <= self.shape[0]):
            most = " at most" if self.at_most else ""
            text = f"block {self.name}: shape is {list(shape)}; must be{most} {list(self.shape)}"
            raise Problem("wrong-shape", text)
        if found.dtype != self.dtype:
            raise Problem("wrong-dtype", f"block {self.name}: dtype is {found.dtype}; must be {self.dtype}")


@dataclass(frozen=True)
class EncodedTensor:
    """A tensor that is sent as parts, which are blocks of the contract.

    :param tensor: what comes of them.
    :param parts: names of the blocks, in their order; the last is the tensor's own.
    """

    tensor: ExpectedBlock
    parts: tuple[str, ...]


class _Form(Protocol):
    """What `ExpectedBlock.check` reads of a block; a `TensorSpec` has it."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> str: ...


class _Block(_Form, Protocol):
    """What `Contract.check` reads of a block; an update's `TensorEntry` has it."""

    @property
    def name(self) -> str: ...
    @property
    def kind(self) -> str: ...


@dataclass(frozen=True)
class Contract:
    """All that may come back for a task.

    :param blocks: in the order in which they must come.
    :param metrics: names of the scalar metrics allowed.
    :param schema: digest of the schema that the job itself gives its data, in hexadecimal; None where it gives none.
    :param ranges: name -> smallest and largest value of a metric whose range is not `METRIC_RANGE`. It is no part of
        the digest: it says what a figure means, not which figures leave. So it is with the next three.
    :param required: metrics that every update has.
    :param limits: further ranges of metrics, narrower, by what the update states itself.
    :param samples: smallest and largest number of samples that an update may state.
    :param alike: metrics in which silos count alike where only a sum is seen; no part of the digest either.
    :param encoding: how tensors were made into parts, as documents say it; None where all are sent as they are.
    :param encoded: those tensors.
    :param algorithm: the hash of every block's digest, one of `fedsilo.files.digests.ALGORITHMS`.
    :param decoded: what comes of the blocks, where a transform of another package has others sent.
    :param decodable: (reads a block by its name, flat) -> nothing, where it does come of them; else raises `Problem`.
        Both are no part of the digest: they say what the blocks mean.
    :param summed: what goes, masked, into the one block of this contract, where only sums over silos may be seen.
    :raises MethodError: when a name is declared twice or cannot be a metric's.
    """

    blocks: tuple[ExpectedBlock, ...]
    metrics: tuple[str, ...] = ()
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict, hash=False)
    schema: str | None = None
    encoding: Mapping[str, str | int | float | bool] | None = field(default=None, hash=False)
    encoded: tuple[EncodedTensor, ...] = ()
    algorithm: str = SHA256
    required: frozenset[str] = frozenset()
    limits: Limits | None = field(default=None, compare=False)
    samples: tuple[int, int] = ANY_SAMPLES
    alike: frozenset[str] = frozenset()
    decoded: Contract | None = None
    decodable: Callable[[Callable[[str], np.ndarray]], None] | None = field(default=None, compare=False)
    summed: Contract | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "metrics", tuple(sorted(self.metrics)))
        for what, names in (("block", [block.name for block in self.blocks]), ("metric", list(self.metrics))):
            if len(set(names)) < len(names):
                raise MethodError(f"contract: {what}s are {', '.join(sorted(names))}; declare each name once")
        if unknown := sorted(self.required - set(self.metrics)):
            raise MethodError(f"contract: metric {unknown[0]} is required; declare it among the metrics")
        for metric in self.metrics:
            if not TOKEN.fullmatch(metric):
                raise MethodError(f"contract: metric is {metric!r}; use printable ASCII without whitespace")

    def digest(self) -> str:
        """SHA-256, in hexadecimal, of the canonical msgpack of the contract (docs/wire.md, Contract)."""
        blocks = [
            [b.kind, b.name, list(b.shape), b.dtype, -1 if b.label is None else b.label] for b in self.blocks
        ]
        more: dict[str, Any] = {} if self.schema is None else {"schema": bytes.fromhex(self.schema)}
        more |= {} if self.encoding is None else {"encoding": dict(self.encoding)}
        more |= {} if self.algorithm == SHA256 else {"digest": self.algorithm}
        more |= {} if self.summed is None else {"summed": bytes.fromhex(self.summed.digest())}
        packed = pack({"protocol": PROTOCOL, "blocks": blocks, "metrics": list(self.metrics)} | more)
        return hashlib.sha256(packed).hexdigest()

    @property
    def tensors(self) -> tuple[ExpectedBlock, ...]:
        """The blocks with what comes of parts in their place."""
        if self.decoded is not None:
            return self.decoded.tensors
        own = {encoded.parts[-1]: encoded.tensor for encoded in self.encoded}
        inner = {name for encoded in self.encoded for name in encoded.parts[:-1]}
        return tuple(own.get(block.name, block) for block in self.blocks if block.name not in inner)

    def max_bytes(self) -> int:
        """Bytes of tensor payload when every optional block is sent too, each as long as it may be."""
        return sum(block.spec.nbytes for block in self.blocks)

    def describe(self) -> list[str]:
        """What leaves the silo, in English, one line per kind and one for the metrics."""
        if self.summed is not None:
            return [f"masked, in a sum over silos: {line}" for line in self.summed.describe()]
        inner = {name for tensor in self.encoded for name in tensor.parts[:-1]}
        lines = [_describe(kind, [b for b in self.blocks if b.kind == kind], inner) for kind in self.kinds()]
        return [*lines, f"metrics: {', '.join(self.metrics) or 'none'}"]

    def kinds(self) -> list[str]:
        """The kinds that occur, in the order of `BLOCK_KINDS`."""
        used = {block.kind for block in self.blocks}
        return [kind for kind in BLOCK_KINDS if kind in used]

    def check(self, blocks: Sequence[_Block], metrics: Mapping[str, float], samples: int = 0) -> None:
        """Return if these blocks, in this order, and these figures are what the contract allows.

        :raises Problem: `unexpected-block` (also when out of order or given twice), `wrong-kind`, `wrong-shape`,
            `wrong-dtype`, `missing-block`, `unexpected-metric`, `not-finite`, `missing-metric` or `out-of-range`.
        """
        self._check_blocks(blocks)
        self._check_figures(metrics, samples)

    def _check_blocks(self, blocks: Sequence[_Block]) -> None:
        expected = {block.name: (place, block) for place, block in enumerate(self.blocks)}
        last = -1
        for found in blocks:
            if found.name not in expected:
                raise Problem("unexpected-block", f"block {found.name}: not in the contract; leave it out")
            place, block = expected[found.name]
            if found.kind != block.kind:
                raise Problem("wrong-kind", f"block {found.name}: kind is {found.kind}; must be {block.kind}")
            block.check(found)
            if place <= last:
                raise Problem(
                    "unexpected-block",
                    f"block {found.name}: comes after {self.blocks[last].name}; keep the contract's order",
                )
            last = place
        names = {block.name for block in blocks}
        for block in self.blocks:
            if block.label is None and block.name not in names:
                raise Problem("missing-block", f"block {block.name}: required by the contract; send it")

    def _check_figures(self, metrics: Mapping[str, float], samples: int) -> None:
        _require_range("samples", samples, self.samples)
        for metric, value in metrics.items():
            if metric not in self.metrics:
                allowed = ", ".join(self.metrics) or "none"
                raise Problem(
                    "unexpected-metric", f"metric {metric}: not in the contract; it allows {allowed}"
                )
            if not math.isfinite(value):
                raise Problem("not-finite", f"metric {metric}: is {value:g}; must be a finite number")
            _require_range(f"metric {metric}", value, self.ranges.get(metric, METRIC_RANGE))
        if missing := sorted(self.required - metrics.keys()):
            raise Problem("missing-metric", f"metric {missing[0]}: required by the contract; send it")
        limits = {} if self.limits is None else self.limits(samples, metrics)
        for metric, limit in limits.items():
            if metric in metrics:
                _require_range(f"metric {metric}", metrics[metric], limit)


def _require_range(name: str, value: float, limits: tuple[float, float]) -> None:
    low, high = limits
    if not low <= value <= high:
        raise Problem("out-of-range", f"{name}: is {value:g}; must be from {low:g} to {high:g}")


def _describe(kind: str, blocks: list[ExpectedBlock], inner: Collection[str]) -> str:
    labels = {block.label for block in blocks if block.label is not None}
    size = sum(block.spec.nbytes for block in blocks)
    count = sum(block.name not in inner for block in blocks)
    most = "at most " if any(block.at_most for block in blocks) else ""
    tensors = "1 tensor" if count == 1 else f"{count} tensors"
    classes = f", only of classes with enough samples, at most {len(labels)} of them" if labels else ""
    return f"{kind.replace('_', ' ')}: {tensors}, {most}{_size_text(size)}{classes}"


def _size_text(size: int) -> str:
    for unit, scale in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= scale:
            return f"{size / scale:.1f} {unit}"
    return f"{size} bytes"
