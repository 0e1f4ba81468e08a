"""Dividing what a silo half replies by `spec.model.parameters`: what leaves, what stays, and what must be as it was.

A silo half trains and replies the whole model and need not know of its parts. Here, before anything is written,
frozen tensors are compared with the initial ones, local tensors go to the private state, and only shared ones stay in
the reply.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from fedsilo.learning.parameters import Parts, require_unchanged
from fedsilo.methods.interface import LOCAL, PERSONAL, Reply
from fedsilo.methods.state import State, StoredTree, Tree

KEPT = (LOCAL, PERSONAL)
"""Trees of private state that are the silo's by `spec.model.parameters`, and not the method's."""


def of_method(private: State) -> State:
    """The private state as the method's silo half left it."""
    return State({name: tree for name, tree in private.trees.items() if name not in KEPT}, private.values)


def divided(
    reply: Reply,
    parts: Parts,
    initial: Mapping[str, np.ndarray],
    private: State,
    own: Mapping[str, Mapping[str, np.ndarray]],
) -> Reply:
    """The reply with shared tensors only, and its private state with the silo's own.

    :param initial: the initial weights.
    :param private: the state before.
    :param own: trees of private state that are new beside the local tensors.
    :raises MethodError: when a frozen tensor was changed, or a tensor of the model is missing.
    """
    kept: dict[str, Tree | StoredTree] = {name: private.trees[name] for name in KEPT if name in private.trees}
    new: dict[str, Tree | StoredTree] = {name: dict(tree) for name, tree in own.items()}
    if not parts.shared.isdisjoint(reply.tensors):
        require_unchanged(parts, initial, reply.tensors)
        if parts.local:
            new[LOCAL] = {name: reply.tensors[name] for name in parts.names if name in parts.local}
    stays = parts.frozen | parts.local
    sent = {name: array for name, array in reply.tensors.items() if name not in stays}
    if reply.private is None and not new:
        return replace(reply, tensors=sent)
    state = of_method(private) if reply.private is None else reply.private
    return replace(reply, tensors=sent, private=state.with_trees(**kept | new))
