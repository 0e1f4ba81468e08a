"""Tensor encoding in the trainer: a reply in parts, with what these leave out kept in the silo.

Error feedback: F. Seide, H. Fu, J. Droppo, G. Li, D. Yu. 1-Bit Stochastic Gradient Descent and its Application to
Data-Parallel Distributed Training of Speech DNNs. Interspeech 2014. S. P. Karimireddy, Q. Rebjock, S. U. Stich, M.
Jaggi. Error Feedback Fixes SignSGD and other Gradient Compression Schemes. ICML 2019.

What an update leaves out is added to what the silo sends next. It is private state, so it counts once the update
that it belongs to is acknowledged. No method needs to know of it: it belongs to one phase, since another may train
another network, and what is left of it then is dropped.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from typing_extensions import override

from fedsilo.encodings.base import base_of
from fedsilo.encodings.registry import DELTA, encoding_in, encoding_of
from fedsilo.encodings.trees import decoded_tree
from fedsilo.errors import MethodError
from fedsilo.methods.interface import Reply, SiloTask
from fedsilo.methods.method import Method
from fedsilo.methods.state import Scalar, State, StoredTree, Tree
from fedsilo.transforms.encoding.learned import learned_tensors
from fedsilo.transforms.encoding.names import PREFIX
from fedsilo.transforms.transform import TrainerSide, Work
from fedsilo.wire import Contract, ExpectedBlock

RESIDUAL = f"{PREFIX}residual"
"""Tree of private state: what was left out of each tensor."""

PHASE = f"{PREFIX}phase"
"""Value of private state: the phase that it belongs to."""


class EncodingTrainerSide(TrainerSide):
    """Tasks with whole tensors, and replies in parts."""

    def __init__(self, method: Method) -> None:
        self._method, self._download, self._upload = (
            method,
            encoding_of(method.spec.download),
            method.spec.upload,
        )

    @override
    def unpack(self, work: Work) -> Work:
        """The task with whole tensors.

        :raises Problem: when they are not what the job says.
        """
        if self._download is None:
            return work
        shapes = learned_tensors(work.context.signature, work.contract())
        own = {name: decoded_tree(tree, shapes, self._download) for name, tree in work.own_trees.items()}
        return replace(work, task=replace(work.task, trees={**work.task.trees, **own}))

    @override
    def pack(self, work: Work, reply: Reply) -> Reply:
        """The reply as the job wants it sent.

        :raises MethodError: when a tensor of it is not what the method declares, or has nothing to differ from.
        """
        if not self._upload.is_encoded:
            return reply
        task = replace(work.task, trees=work.own_trees)
        return encoded_reply(reply, task, work.private, work.contract(), self._upload.feeds_errors_back)


def encoded_reply(reply: Reply, task: SiloTask, private: State, contract: Contract, feedback: bool) -> Reply:
    """The reply as the contract wants it.

    :param task: with the method's trees, from which differences are taken.
    :param private: the silo's state before the step.
    :param feedback: whether to keep what is left out.
    :raises MethodError: when a tensor of the reply is not what the method declares, or has nothing to differ from.
    """
    encoding = encoding_in(contract)
    if encoding is None:
        return reply
    before = private.tree(RESIDUAL) if private.values.get(PHASE) == task.phase else {}
    differences = bool(contract.encoding and contract.encoding[DELTA])
    tensors, residual = dict(reply.tensors), Tree()
    for found in contract.encoded:
        name = found.tensor.name
        if name not in tensors:
            continue  # which whoever checks the contract says
        values = _as_declared(found.tensor, tensors.pop(name))
        base = base_of(found.tensor, task.trees, encoding) if differences else None
        values = values - base if base is not None else values
        earlier = before.get(name)
        if earlier is not None and earlier.shape == values.shape:
            values = values + earlier
        parts = encoding.encode(values)
        tensors |= dict(zip(found.parts, parts, strict=True))
        if feedback:
            with np.errstate(
                all="ignore"
            ):  # of values that diverged: such an update is refused, and this with it
                residual[name] = np.asarray(values - encoding.decode(parts, values.shape), np.float32)
    reply = replace(reply, tensors=tensors)
    if not feedback:
        return reply
    return replace(
        reply,
        private=_with_residual(private if reply.private is None else reply.private, residual, task.phase),
    )


def _with_residual(state: State, residual: Tree | StoredTree, phase: Scalar) -> State:
    return State({**state.trees, RESIDUAL: residual}, {**state.values, PHASE: phase})


def _as_declared(tensor: ExpectedBlock, found: np.ndarray) -> np.ndarray:
    if found.shape != tensor.shape or found.dtype != tensor.dtype:
        raise MethodError(
            f"the reply's {tensor.name} is {found.dtype} of shape {found.shape}; the method declares {tensor.dtype} "
            f"of shape {tensor.shape}"
        )
    return found
