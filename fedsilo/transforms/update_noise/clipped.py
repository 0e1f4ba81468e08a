"""What is done to an update of a job with `unit: silo` before it leaves: its change is clipped, and gets its noise.

Arithmetic alone, of arrays that nobody else may change: the guard does so with its own copies of files, a simulation
with what it has in memory. In pieces, of which few are in double precision at a time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from fedsilo.errors import PolicyRefused, Problem
from fedsilo.privacy.clipping import change, clip_factor, pieces
from fedsilo.transforms.update_noise.privacy import UpdatePrivacy


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


def noise_seed_domain(
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
            for piece in pieces(tree[name]):
                digest.update(np.ascontiguousarray(piece).data)
    return "silo privacy", phase, round, digest.hexdigest()


def privatized_pieces(
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
    try:
        factor = clip_factor(((model[name], base[name]) for name in base), privacy.max_norm)
    except Problem as problem:
        raise PolicyRefused(problem.detail) from problem
    for name in names:
        for new, old in zip(pieces(model[name]), pieces(base[name]), strict=True):
            noise = random.normal(0, privacy.deviation, old.size)
            yield name, (old.astype(np.float64) + factor * change(new, old) + noise).astype(old.dtype)
