"""Transforms of other packages in the trainer: a reply with what is sent in the place of a model's tensors.

They see tensors alone: those of the reply, those of the task, and what they kept themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from typing_extensions import override

from fedsilo.encodings.base import handed_out
from fedsilo.errors import MethodError
from fedsilo.methods.interface import Reply
from fedsilo.methods.state import State, Tree
from fedsilo.transforms.third_party.interface import UpdateTransform
from fedsilo.transforms.third_party.passages import Passage, passages_of
from fedsilo.transforms.third_party.registry import FIELD
from fedsilo.transforms.transform import TrainerSide, Work


class ThirdPartyTrainerSide(TrainerSide):
    """The model of a reply as transforms have it sent.

    :param prefix: begins the names of what the silo keeps for them.
    """

    def __init__(self, transforms: Sequence[UpdateTransform], prefix: str) -> None:
        self._transforms, self._prefix = transforms, prefix
        self._phase = f"{prefix}phase"

    @override
    def pack(self, work: Work, reply: Reply) -> Reply:
        """The reply with what the transforms make of its tensors.

        :raises MethodError: when a tensor is not what the method declares, or was not handed out, or a transform does
            something else than it says.
        """
        plain = work.contract().decoded
        if plain is None:
            return reply
        passages = passages_of(self._transforms, plain)
        base = _handed_out(passages[0], work)
        tensors, kept = dict(reply.tensors), self._kept_before(work)
        require_trained(passages[0], tensors)
        left: dict[str, Tree] = {}
        for passage in passages:
            name = passage.transform.name
            model = {spec.name: tensors.pop(spec.name) for spec in passage.model}
            sent, left[name] = passage.encode(model, base, kept.get(name, {}))
            tensors |= sent
        reply = replace(reply, tensors=tensors)
        if not any(left.values()) and not any(kept.values()):
            return reply
        own = work.private if reply.private is None else reply.private
        trees = {f"{self._prefix}{name}": tree for name, tree in left.items()}
        return replace(reply, private=own.with_trees(**trees).with_values(**{self._phase: work.task.phase}))

    def _kept_before(self, work: Work) -> dict[str, Tree]:
        """Transform -> what it kept in this phase; another phase may train another network."""
        private: State = work.private
        if private.values.get(self._phase) != work.task.phase:
            return {}
        names = {each.name: f"{self._prefix}{each.name}" for each in self._transforms}
        return {name: private.tree(tree) for name, tree in names.items() if tree in private.trees}


def require_trained(passage: Passage, tensors: Tree) -> None:
    """Check the tensors that the first transform is given.

    :raises MethodError: naming one that is missing, of another form or not finite.
    """
    found = {spec.name: tensors[spec.name] for spec in passage.model if spec.name in tensors}
    for spec in passage.model:
        if spec.name not in found:
            raise MethodError(f"the reply has no {spec.name}, which the method declares")
        array = found[spec.name]
        if array.shape != spec.shape or array.dtype != spec.dtype:
            raise MethodError(
                f"the reply's {spec.name} is {array.dtype} of shape {array.shape}; the method declares {spec.dtype} of "
                f"shape {spec.shape}"
            )
        if not np.isfinite(array).all():
            raise MethodError(
                f"the reply's {spec.name} holds NaN or infinity; lower the learning rate or clip gradients"
            )


def _handed_out(passage: Passage, work: Work) -> Tree:
    trees, base = work.own_trees, Tree()
    for spec in passage.model:
        found = handed_out(spec, trees)
        if found is None:
            raise MethodError(
                f"{FIELD}: {passage.transform.name}: the task hands out no tensor {spec.name!r} that the silo could "
                "have changed; use a method whose silos send back what they were handed, such as fedavg"
            )
        base[spec.name] = found
    return base
