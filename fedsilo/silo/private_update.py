"""What is done to an update of a job with `unit: silo` before it leaves: its change is clipped, and gets its noise.

Arithmetic alone, of arrays that nobody else may change: the guard does so with its own copies of files, a simulation
with what it has in memory. In pieces, of which few are in double precision at a time.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from fedsilo.errors import PolicyRefused
from fedsilo.methods.silo_privacy import UpdatePrivacy
from fedsilo.methods.state import Tree

MODEL = "model"
"""The tree of a task from which a silo's change is counted."""

PIECE_ITEMS = 1 << 17


def require_change(model: Mapping[str, np.ndarray], base: Mapping[str, np.ndarray]) -> None:
    """Check that one can be subtracted from the other.

    :raises PolicyRefused: naming the tensor that cannot.
    """
    for name in [*base, *(name for name in model if name not in base)]:
        if name not in model or name not in base:
            where = "the silo's reply" if name not in model else "the task's model"
            raise PolicyRefused(
                f"block {name}: is not in {where}; with unit silo a reply has all of the model"
            )
        one, other = model[name], base[name]
        if (one.shape, one.dtype) != (other.shape, other.dtype) or one.dtype.kind != "f":
            raise PolicyRefused(
                f"block {name}: {one.dtype} {one.shape} cannot be clipped and get noise against {other.dtype} "
                f"{other.shape} of the task's model, as unit silo needs; use a network of floating-point tensors"
            )


def purpose(
    phase: str, round: int, model: Mapping[str, np.ndarray], base: Mapping[str, np.ndarray]
) -> tuple[str | int, ...]:
    """What the noise of one update is drawn for, see `fedsilo.silo.secret`.

    The same for the same reply in the same exchange, so that a guard which was started again gives the same bytes. For
    another reply, or change from another model, other noise: the difference of two updates tells nothing of it.
    """
    digest = hashlib.sha256()
    for tree in (base, model):
        for name in sorted(tree):
            digest.update(f"{name} {tree[name].dtype} {tree[name].shape};".encode())
            for piece in _pieces(tree[name]):
                digest.update(np.ascontiguousarray(piece).data)
    return "silo privacy", phase, round, digest.hexdigest()


def clip_factor(model: Mapping[str, np.ndarray], base: Mapping[str, np.ndarray], max_norm: float) -> float:
    """What the change is multiplied with, at most 1, so that its L2 norm over all tensors is at most `max_norm`.

    :raises PolicyRefused: when the change is not finite.
    """
    squares = 0.0
    for name in base:
        for new, old in zip(_pieces(model[name]), _pieces(base[name]), strict=True):
            squares += float(np.square(_change(new, old)).sum())
    if not math.isfinite(squares):
        raise PolicyRefused("the silo's change of the model is not finite; use a smaller learning rate")
    return max_norm / max(math.sqrt(squares), max_norm)


def private_pieces(
    names: Sequence[str],
    model: Mapping[str, np.ndarray],
    base: Mapping[str, np.ndarray],
    privacy: UpdatePrivacy,
    random: np.random.Generator,
) -> Iterator[tuple[str, np.ndarray]]:
    """base + clipped change + noise, in flat pieces, with the names of their tensors.

    :param names: of all tensors, in the order in which noise is drawn.
    :param random: nobody else can draw from it.
    :raises PolicyRefused: when the change cannot be clipped.
    """
    require_change(model, base)
    factor = clip_factor(model, base, privacy.max_norm)
    for name in names:
        for new, old in zip(_pieces(model[name]), _pieces(base[name]), strict=True):
            noise = random.normal(0, privacy.deviation, old.size)
            yield name, (old.astype(np.float64) + factor * _change(new, old) + noise).astype(old.dtype)


def private_tree(
    names: Sequence[str],
    model: Mapping[str, np.ndarray],
    base: Mapping[str, np.ndarray],
    privacy: UpdatePrivacy,
    random: np.random.Generator,
) -> Tree:
    """The same as whole tensors; arguments and errors as `private_pieces`."""
    found: dict[str, list[np.ndarray]] = {name: [] for name in names}
    for name, piece in private_pieces(names, model, base, privacy, random):
        found[name].append(piece)
    return {
        name: np.concatenate(found[name] or [base[name].reshape(-1)]).reshape(base[name].shape)
        for name in names
    }


def _change(new: np.ndarray, old: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore", over="ignore"):
        return new.astype(np.float64) - old.astype(np.float64)


def _pieces(array: np.ndarray) -> Iterator[np.ndarray]:
    """The flat tensor in parts; none of a tensor without items."""
    flat = array.reshape(-1)
    for first in range(0, flat.size, PIECE_ITEMS):
        yield flat[first : first + PIECE_ITEMS]
