"""The optimiser's state as part of a silo's private state: `spec.training.optimizer.state: keep`.

No method needs to know of it: the runner takes it out of the private state before a step and puts it back after. It
belongs to one phase of the job, since another phase may train another network.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from fedsilo.learning.optimizers import OptimizerState
from fedsilo.methods.interface import Reply
from fedsilo.methods.state import State

PREFIX = "optimizer."
"""Trees and values of private state that begin so are not a method's."""

PHASE, STEPS = f"{PREFIX}phase", f"{PREFIX}steps"


def kept_state(private: State, phase: str) -> OptimizerState:
    """What the silo kept in this phase; empty in its first round of it."""
    if private.values.get(PHASE) != phase:
        return OptimizerState()
    kept = {name.removeprefix(PREFIX): private.tree(name) for name in _of_optimizer(private.trees)}
    return OptimizerState(kept, private.values[STEPS])


def with_kept_state(reply: Reply, private: State, phase: str, kept: OptimizerState) -> Reply:
    """The reply with the optimiser's state in its private state; a step that trained nothing leaves what was there.

    :param private: the silo's state before the step.
    :param kept: what `kept_state` gave, as the step left it.
    """
    if not kept.replaced and reply.private is None:
        return reply
    own = private if reply.private is None else reply.private
    if kept.replaced:
        trees: Mapping[str, Any] = {PREFIX + kind: dict(tree) for kind, tree in kept.trees.items()}
        values: Mapping[str, Any] = {PHASE: phase, STEPS: dict(kept.steps)}
    else:
        trees, values = _of_optimizer(private.trees), _of_optimizer(private.values)
    return replace(
        reply, private=State({**_of_method(own.trees), **trees}, {**_of_method(own.values), **values})
    )


def _of_optimizer(named: Mapping[str, Any]) -> dict[str, Any]:
    return {name: item for name, item in named.items() if name.startswith(PREFIX)}


def _of_method(named: Mapping[str, Any]) -> dict[str, Any]:
    return {name: item for name, item in named.items() if not name.startswith(PREFIX)}
