"""Parts of a model in the trainer: what leaves of a silo half's reply, what stays, and what must be as it was.

A silo half trains and replies the whole model and need not know of its parts. Before anything is written, frozen
tensors are compared with the initial ones, local tensors go to the private state, and only shared ones stay in the
reply.
"""

from __future__ import annotations

from dataclasses import replace

from typing_extensions import override

from fedsilo.learning.parameters import ParameterPartition, require_unchanged
from fedsilo.methods.interface import EVALUATE, INITIAL_WEIGHTS, LOCAL, PERSONAL_TREE, Reply
from fedsilo.methods.method import Method
from fedsilo.methods.state import StoredTree, Tree
from fedsilo.transforms.transform import TrainerSide, Work


class ParametersTrainerSide(TrainerSide):
    """The silo's own tensors in its networks, and its reply without them."""

    def __init__(self, method: Method) -> None:
        self._method = method

    @override
    def unpack(self, work: Work) -> Work:
        """The context with the initial weights and the silo's own tensors, where the task hands out the former."""
        if INITIAL_WEIGHTS not in work.task.trees:
            return work
        local = work.private.tree(LOCAL) if LOCAL in work.private.trees else {}
        context = replace(work.context, initial=work.task.trees[INITIAL_WEIGHTS], local=local)
        return replace(work, context=context)

    @override
    def pack(self, work: Work, reply: Reply) -> Reply:
        """The reply with shared tensors only, and its private state with the silo's own.

        :raises MethodError: when a frozen tensor was changed, or a tensor of the model is missing.
        """
        parts: ParameterPartition | None = work.context.parts
        if parts is None:
            return reply
        new: dict[str, Tree | StoredTree] = {}
        if self._makes_personal(work):
            new[PERSONAL_TREE] = dict(work.context.full_tree(work.task.trees["model"]))
        if not parts.shared.isdisjoint(reply.tensors):
            require_unchanged(parts, work.context.initial or {}, reply.tensors)
            if parts.local:
                new[LOCAL] = {name: reply.tensors[name] for name in parts.names if name in parts.local}
        stays = parts.frozen | parts.local
        sent = {name: array for name, array in reply.tensors.items() if name not in stays}
        if not new:
            return replace(reply, tensors=sent)
        own = work.private if reply.private is None else reply.private
        return replace(reply, tensors=sent, private=own.with_trees(**new))

    def _makes_personal(self, work: Work) -> bool:
        """Whether the task's model, with the silo's own tensors, is the model that the silo has from now on."""
        scored = work.task.step == EVALUATE and "model" in work.task.trees
        return scored and self._method.models.in_silos(self._method.spec)
