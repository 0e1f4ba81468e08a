"""What a silo's reply must satisfy before any of it may leave, whether it lies in files or in memory.

The trainer runs code that the silo did not write, so nothing in its reply is trusted: numbers must be finite, every
block must be one that the contract expects, and every per-class block must be computed from enough samples.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from reprlib import repr as shortened
from typing import Any, get_args

import numpy as np

from fedsilo.errors import PolicyRefused, Problem
from fedsilo.methods.interface import Reply
from fedsilo.methods.step import CALIBRATION, CONFUSION, TARGETS
from fedsilo.methods.traits import MechanismName
from fedsilo.privacy.mechanism import Mechanism
from fedsilo.wire import Contract, ExpectedBlock
from fedsilo.wire.tensors import TensorSpec

MAX_COUNT = 2**63 - 1
"""The largest integer of the wire."""

MOST_MECHANISMS = len(get_args(MechanismName))
"""An answer goes through one of each kind at most."""

NOISE_TOLERANCE = 1e-3
"""Relative difference of noise multipliers that two versions of `dp-accounting` may find for one epsilon."""

FEATURE_BLOCKS = ("count", "missing", "mean", "m2")
"""Blocks of kind `feature_statistics`, beside those of histograms."""

HISTOGRAM = "histogram/"
"""What the name of a histogram begins with; its feature follows."""


@dataclass(frozen=True)
class ReplyMetadata:
    """A reply without its tensors; fields as in `Reply`."""

    samples: int
    metrics: Mapping[str, float]
    support: Mapping[str, float]
    mechanisms: tuple[Mechanism, ...] = ()

    @classmethod
    def parse(cls, document: Mapping[str, Any]) -> ReplyMetadata:
        """Read what should be a document of `reply_document`; a trainer may have written anything else.

        :raises PolicyRefused: for anything but counts, finite numbers and mechanisms.
        """
        samples, metrics, support = (document.get(key) for key in ("samples", "metrics", "support"))
        if not isinstance(samples, int) or isinstance(samples, bool) or not 0 <= samples <= MAX_COUNT:
            raise PolicyRefused(f"reply: samples {shortened(samples)} is not a count")
        mechanisms = _mechanisms(document.get("mechanisms", []))
        return cls(samples, _numbers("metrics", metrics), _numbers("support", support), mechanisms)


def reply_document(reply: Reply) -> dict[str, Any]:
    """A reply's metadata as plain JSON values."""
    return {
        "samples": int(reply.samples),
        "metrics": {name: float(value) for name, value in reply.metrics.items()},
        "support": {name: int(count) for name, count in reply.support.items()},
        **({"mechanisms": [each.to_dict() for each in reply.mechanisms]} if reply.mechanisms else {}),
    }


def require_planned(stated: Sequence[Mechanism], planned: Sequence[Mechanism], samples: int) -> None:
    """Check that a trainer has done what the job's plan has it do, as far as it says so itself.

    :param stated: mechanisms of the trainer's reply.
    :param planned: those of its step, by the job, for a silo of so many samples.
    :raises PolicyRefused: when they are others.
    """
    if len(stated) != len(planned) or not all(map(_is_planned, stated, planned)):
        raise PolicyRefused(
            f"reply: mechanisms are {_mechanisms_text(stated)}, and the job's plan for this step in a silo of "
            f"{samples} samples is {_mechanisms_text(planned)}; run a trainer that does what the job says"
        )


def _is_planned(stated: Mechanism, planned: Mechanism) -> bool:
    alike = math.isclose(stated.noise_multiplier, planned.noise_multiplier, rel_tol=NOISE_TOLERANCE)
    return alike and (stated.sampling, stated.times) == (planned.sampling, planned.times)


def _mechanisms_text(mechanisms: Sequence[Mechanism]) -> str:
    return (
        ", ".join(
            f"noise multiplier {each.noise_multiplier:g} with sampling {each.sampling:g}, {each.times} times"
            for each in mechanisms
        )
        or "none"
    )


def released_blocks(
    contract: Contract, found: Mapping[str, TensorSpec], support: Mapping[str, float], min_samples: int
) -> list[ExpectedBlock]:
    """The blocks of a reply that may leave, in the contract's order.

    :param found: the reply's tensors by name.
    :param support: samples behind each per-class block.
    :param min_samples: that each per-class block must be computed from.
    :raises Problem: `unexpected-block`, `wrong-shape` or `wrong-dtype`.
    :raises PolicyRefused: when a block was computed from too few samples.
    """
    expected = [block for block in contract.blocks if block.name in found]
    unknown = sorted(found.keys() - {block.name for block in expected})
    if unknown:
        raise Problem("unexpected-block", f"block {unknown[0]!r} is not in the contract")
    for block in expected:
        block.check(found[block.name])
        if block.label is not None and support.get(block.name, 0) < min_samples:
            remedy = "the method must leave it out"
            if block.name not in support:
                remedy += ", or state in Reply.support on how many samples it stands, which it does not"
            raise PolicyRefused(
                f"block {block.name}: class {block.label} stands on {support.get(block.name, 0):g} samples, "
                f"fewer than minSamplesPerClass {min_samples}; {remedy}"
            )
    return expected


def require_enough_values(
    blocks: Iterable[ExpectedBlock], tensor: Callable[[str], np.ndarray], minimum: int, per_part: int
) -> None:
    """Check that statistics of features are computed from enough values, as far as they show it themselves.

    A count is 0 or at least the minimum, and in each part of a histogram that of parts; where it is 0, mean and spread
    are too.
    Blocks of other names are refused, since nothing would be known of them.

    :param blocks: those that leave.
    :param tensor: their contents, by name.
    :raises PolicyRefused: naming the block and the feature.
    """
    statistics = [
        block.name
        for block in blocks
        if block.kind == "feature_statistics" and not block.name.startswith(TARGETS)
    ]
    for name in statistics:
        if name not in FEATURE_BLOCKS and not name.startswith(HISTOGRAM):
            raise PolicyRefused(
                f"block {name}: is none of {', '.join(FEATURE_BLOCKS)} and {HISTOGRAM}<feature>, "
                "the blocks of kind feature_statistics"
            )
        values = np.array(
            tensor(name)
        )  # a copy: an error would keep a view, and the file could not be closed
        if name == "count" or name.startswith(HISTOGRAM):
            least = minimum if name == "count" else per_part
            few, what = (
                (values != 0) & (values < least),
                f"fewer than the {least} that minSamplesPerFeature asks",
            )
        elif name in ("mean", "m2"):
            counts = np.array(tensor("count")) if "count" in statistics else np.zeros(values.shape)
            few, what = (values != 0) & (counts == 0), "the statistic of a feature whose count is 0"
        else:
            continue
        if few.any():
            place = int(np.argmax(few.reshape(-1)))
            raise PolicyRefused(
                f"block {name}: place {place} is {values.reshape(-1)[place]:g}, {what}; the method must leave it out"
            )
        if name.startswith(HISTOGRAM) and "count" in statistics:
            _require_enough_left_out(name, values, np.array(tensor("count")), per_part)


def _require_enough_left_out(name: str, parts: np.ndarray, counts: np.ndarray, minimum: int) -> None:
    """Check that the parts of a histogram that were left out do not follow from the feature's count and the others.

    :raises PolicyRefused: naming the block.
    """
    feature = name.removeprefix(HISTOGRAM)
    count = int(counts[int(feature)]) if feature.isdecimal() and int(feature) < len(counts) else 0
    left_out = count - int(parts.sum())
    if left_out != 0 and left_out < minimum:
        raise PolicyRefused(
            f"block {name}: the feature's count less all parts is {left_out}, neither 0 nor the {minimum} that "
            "minSamplesPerFeature asks; the method must leave out another part, or count none twice"
        )


def require_enough_examples(
    blocks: Iterable[ExpectedBlock], tensor: Callable[[str], np.ndarray], per_class: int, per_feature: int
) -> None:
    """Check that what scores follow from is computed from enough examples, as far as it shows it itself.

    A row of counts has at least as many examples as a class must have; a bin of confidence has none or as many; so have
    the statistics of targets, with the minimum of features.

    :param blocks: those that leave.
    :param tensor: their contents, by name.
    :raises PolicyRefused: naming the block and its count.
    """
    for block in blocks:
        if block.name in (TARGETS + "mean", TARGETS + "m2"):
            # A copy, here and below, as above; where no example may count, nothing may be said of it either.
            values, unsaid = np.array(tensor(block.name)), np.array(tensor(TARGETS + "count")) == 0
            _require_none(block.name, values[unsaid & (values != 0)], "the statistic of no example")
        elif block.name == TARGETS + "count":
            counts = np.array(tensor(block.name))
            few = f"fewer examples than the {per_feature} that minSamplesPerFeature asks"
            _require_none(block.name, counts[(counts != 0) & (counts < per_feature)], few)
        elif block.kind == CONFUSION:
            values = np.array(tensor(block.name))
            bins = values[values.any(axis=1), 0] if block.name == CALIBRATION else values.sum(keepdims=True)
            few = f"fewer examples than the {per_class} that minSamplesPerClass asks"
            _require_none(block.name, bins[bins < per_class], few)


def _require_none(block: str, found: np.ndarray, what: str) -> None:
    if found.size:
        raise PolicyRefused(f"block {block}: {found[0]:g} is {what}; the method must leave it out")


def _mechanisms(value: Any) -> tuple[Mechanism, ...]:
    if not isinstance(value, list) or len(value) > MOST_MECHANISMS:
        raise PolicyRefused(
            f"reply: mechanisms {shortened(value)} are not a list of at most {MOST_MECHANISMS}, as many as a step has"
        )
    try:
        return tuple(Mechanism.from_dict(each) for each in value)
    except ValueError as error:
        raise PolicyRefused(f"reply: {error}") from error


def _numbers(name: str, value: Any) -> dict[str, float]:
    try:
        return {key: _finite_number(number) for key, number in value.items()}
    except (AttributeError, TypeError, ValueError, OverflowError):
        raise PolicyRefused(f"reply: {name} {shortened(value)} are not finite numbers by name") from None


def _finite_number(number: Any) -> float:
    if not isinstance(number, int | float) or isinstance(number, bool) or not math.isfinite(number):
        raise ValueError(number)
    return float(number)
