"""The optimiser's state in the trainer; it belongs to one phase of the job, since another may train another network."""

from __future__ import annotations

from dataclasses import replace

from typing_extensions import override

from fedsilo.learning.optimizers import OptimizerState
from fedsilo.methods.interface import Reply
from fedsilo.methods.state import State
from fedsilo.transforms.optimizer_state.names import PREFIX
from fedsilo.transforms.transform import TrainerSide, Work

PHASE, STEPS = f"{PREFIX}phase", f"{PREFIX}steps"


class OptimizerStateTrainerSide(TrainerSide):
    """The state of one phase, between a silo's private state and its training."""

    @override
    def unpack(self, work: Work) -> Work:
        """The context whose training goes on with it; empty in the silo's first round of a phase."""
        return replace(
            work, context=replace(work.context, kept=_kept_optimizer_state(work.private, work.task.phase))
        )

    @override
    def pack(self, work: Work, reply: Reply) -> Reply:
        """The reply with the new state; a step that trained nothing leaves what was there."""
        kept: OptimizerState = work.context.kept
        if not kept.replaced:
            return reply
        own = work.private if reply.private is None else reply.private
        trees = {name: tree for name, tree in own.trees.items() if not name.startswith(PREFIX)}
        trees |= {PREFIX + kind: dict(tree) for kind, tree in kept.trees.items()}
        values = {**own.values, PHASE: work.task.phase, STEPS: dict(kept.steps)}
        return replace(reply, private=State(trees, values))


def _kept_optimizer_state(private: State, phase: str) -> OptimizerState:
    if private.values.get(PHASE) != phase:
        return OptimizerState()
    names = [name for name in private.trees if name.startswith(PREFIX)]
    trees = {name.removeprefix(PREFIX): private.tree(name) for name in names}
    return OptimizerState(trees, private.values[STEPS])
