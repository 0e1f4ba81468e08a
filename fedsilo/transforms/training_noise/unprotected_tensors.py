"""What of a private reply must be as the task handed it out: every tensor that no mechanism has clipped and noised.

Where the job protects examples or persons, the trainer knows which tensors went through a mechanism and compares all
others with those of the task. The guard cannot see noise, but it knows that there is none in integers and booleans of a
model, and compares these itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np

from fedsilo.api.job import FederatedJobSpec
from fedsilo.errors import MethodError, PolicyRefused
from fedsilo.methods.differential_privacy import FIELD
from fedsilo.methods.interface import Reply, SiloTask
from fedsilo.secure_aggregation.parts import is_float
from fedsilo.wire import Contract
from fedsilo.wire.tensors import raw_bytes


def trainer_adds_noise(spec: FederatedJobSpec) -> bool:
    """Whether a job's differential privacy is of examples or persons, whose noise the trainer adds."""
    private = spec.privacy.differential_privacy
    return private is not None and private.noised_by_trainer


def require_private(reply: Reply, task: SiloTask) -> None:
    """Check a reply whose trainer adds the noise: each tensor went through a mechanism, or is as it was handed out.

    :param task: to which it answers, with the method's trees and the job's own.
    :raises MethodError: naming a tensor that is neither.
    """
    if reply.noised and not reply.mechanisms:
        raise MethodError(
            f"{FIELD}: tensor {min(reply.noised)!r}: is said to be noised, and the reply names no mechanism: nothing "
            "is sent; have the method's silo half state what its examples went through"
        )
    for name, array in reply.tensors.items():
        if name in reply.noised or any(is_same(tree.get(name), array) for tree in task.trees.values()):
            continue
        raise MethodError(
            f"{FIELD}: tensor {name!r}: is neither clipped and noised nor as the task handed it out: nothing is sent; "
            "make it a parameter that is trained, or leave it as it was"
        )


def exact_tensors(contract: Contract) -> tuple[str, ...]:
    """Names of a model's tensors in a contract that have no fractions, so that nothing adds noise to them."""
    return tuple(
        block.name for block in contract.tensors if block.kind == "model" and not is_float(block.dtype)
    )


def require_handed_out(
    names: Iterable[str], tensor: Callable[[str], np.ndarray], base: Mapping[str, np.ndarray]
) -> None:
    """Check that tensors are those of the task's model.

    :param tensor: contents of the reply, by name.
    :raises PolicyRefused: naming the first that is not.
    """
    for name in names:
        # A copy: an error would keep a view, and the file could not be closed.
        if not is_same(base.get(name), np.array(tensor(name))):
            raise PolicyRefused(
                f"block {name}: is not as the task handed it out, and nothing adds noise to integers and booleans, as "
                f"{FIELD} asks; leave it as it was"
            )


def is_same(one: np.ndarray | None, other: np.ndarray) -> bool:
    """Whether both are the same to the bit."""
    if one is None or (one.shape, one.dtype) != (other.shape, other.dtype):
        return False
    return bool(np.array_equal(raw_bytes(one), raw_bytes(other)))
