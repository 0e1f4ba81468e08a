"""The silo's side of a round: run one step of the method's silo half on the silo's own examples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from fedsilo.errors import ManifestInvalid, MethodError
from fedsilo.learning.custom_training import import_trainer
from fedsilo.methods.checks import check_training
from fedsilo.methods.components.private_steps import require_examples_apart
from fedsilo.methods.interface import BatchedStep, Reply, SiloTask
from fedsilo.methods.method import Method
from fedsilo.methods.state import KeptTree, State
from fedsilo.plain_numbers import plain_number
from fedsilo.silo.context import LocalContext
from fedsilo.transforms.plan import JobPlan
from fedsilo.transforms.transform import TrainerSide, Work, acting
from fedsilo.wire import DTYPES


class TaskRunner:
    """Runs tasks of one job in one silo.

    :param method: bound to the job.
    :param tried: whether another silo of this process has tried the same network.
    :raises ManifestInvalid: when the method cannot train as the job says, or the job's own training or what computes
        its metrics is not installed.
    :raises MethodError: when that does not load, or, in a network whose steps are private, examples see each other or
        anything of them is kept beside what its parameters learn.
    """

    def __init__(self, method: Method, context: LocalContext, *, tried: bool = False) -> None:
        for path, value, problem, remedy in check_training(method):
            raise ManifestInvalid(f"{path}: {value!r}: {problem}; {remedy}")
        if method.spec.training.trainer is not None:
            import_trainer(method.spec.training.trainer)
        if not tried:
            require_examples_apart(context, context.untrained_network)
        self.method = method
        self.context = context
        self._steps = method.silo()
        self._plan = JobPlan(method)
        self._sides = {each: each.in_trainer() for each in self._plan.transforms}

    def batched_step(self, step: str) -> BatchedStep | None:
        """The step, where the method can do it for several silos at once."""
        found = self._steps.get(step)
        return found if isinstance(found, BatchedStep) else None

    def run(self, task: SiloTask, private: State) -> Reply:
        """Run one task of the job, and return the reply to it.

        :param private: what the silo kept from its last acknowledged reply.
        :raises MethodError: when the silo half has no such step or does not return a reply.
        """
        try:
            work = self.unpack_task(task, private)
            return self.pack_reply(work, self._answer(work))
        finally:
            if self.context.kept_network is not None:
                self.context.kept_network.release()

    def unpack_task(self, task: SiloTask, private: State) -> Work:
        """A task as whoever answers its step gets it.

        :raises Problem: when it is not what the job says.
        """
        contract = partial(self._plan.contract, task.step, self.context.signature, task.settings)
        work = Work(self.context, task, private, contract, self._plan.owns)
        for side in reversed(self._outer_sides(task.step, "unpack")):
            work = side.unpack(work)
        return work

    def pack_reply(self, work: Work, reply: Reply) -> Reply:
        """What whoever answered a step has replied, as it leaves the trainer.

        :raises MethodError: when a private one has a tensor that is neither noised nor as it was handed out.
        """
        if reply.private is not None:
            reply = replace(reply, private=self._plan.with_kept(work.private, reply.private))
        for side in self._outer_sides(work.task.step, "pack"):
            reply = side.pack(work, reply)
        return reply

    def method_inputs(self, work: Work) -> tuple[SiloTask, State]:
        """Task and private state as the method's silo half sees them."""
        return replace(work.task, trees=work.own_trees), self._plan.kept_by_method(work.private)

    def _answer(self, work: Work) -> Reply:
        owner, name = self._plan.owner(work.task.step), self.method.name
        if owner is not None:
            return self._sides[owner].answer(work)
        step = self._steps.get(work.task.step)
        if step is None:
            raise MethodError(f"the silo half of method {name} has no step {work.task.step!r}")
        reply, where = (
            step(work.context, *self.method_inputs(work)),
            f"step {work.task.step!r} of method {name}",
        )
        if not isinstance(reply, Reply):
            raise MethodError(f"{where} returned no Reply")
        if reply.private is not None:
            _require_state(where, reply.private)
        return _plain_reply(where, reply)

    def _outer_sides(self, step: str, verb: str) -> list[TrainerSide]:
        """The transforms that a step passes which have this to do in a trainer."""
        return acting([self._sides[each] for each in self._plan.outer_transforms(step)], TrainerSide, verb)


def _plain_reply(where: str, reply: Reply) -> Reply:
    """The reply with numbers of Python and arrays of NumPy, whatever library its numbers are of.

    :raises MethodError: when it has other things in their places.
    """
    tensors = {name: np.asarray(a) if isinstance(a, np.generic) else a for name, a in reply.tensors.items()}
    for name, array in tensors.items():
        if not isinstance(array, np.ndarray):
            raise MethodError(
                f"{where}: {name!r} of Reply.tensors is a {type(array).__name__}; give NumPy arrays"
            )
    metrics = {name: _number(where, "metrics", name, found, float) for name, found in reply.metrics.items()}
    support = {name: _number(where, "support", name, found, int) for name, found in reply.support.items()}
    samples = _number(where, "samples", None, reply.samples, int)
    return replace(reply, tensors=tensors, samples=samples, metrics=metrics, support=support)


def _number(where: str, field: str, name: str | None, found: object, kind: type) -> Any:
    number = plain_number(found)
    if isinstance(number, int) or (isinstance(number, float) and (kind is float or number.is_integer())):
        return kind(number)
    wanted = "a whole number" if kind is int else "a number"
    named = f"{field} {name!r}" if name else field
    raise MethodError(f"{where}: {named} of its Reply is a {type(found).__name__}; give {wanted}")


def _require_state(where: str, private: object) -> None:
    """Check what a silo half keeps, before anybody reads it.

    :raises MethodError: when it is no state, or has other things than arrays in its trees.
    """
    if not isinstance(private, State):
        raise MethodError(f"{where}: Reply.private is a {type(private).__name__}; keep a State, or None")
    for name, tree in private.trees.items():
        if not isinstance(tree, Mapping):
            raise MethodError(
                f"{where}: tree {name!r} of Reply.private is a {type(tree).__name__}; keep a mapping from names "
                "to arrays"
            )
        for tensor, array in () if isinstance(tree, KeptTree) else tree.items():
            if not isinstance(array, np.ndarray) or array.dtype.name not in DTYPES:
                kind = array.dtype if isinstance(array, np.ndarray) else type(array).__name__
                raise MethodError(
                    f"{where}: {name}/{tensor} of Reply.private is {kind}; keep NumPy arrays of numbers in "
                    "State.trees, and numbers, texts and lists in State.values"
                )
