"""What a job does, from its specification and its method's declaration alone: exchanges, and what may come back.

Guard and aggregator each derive it for themselves. It needs no torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

from fedsilo.api.job import FederatedJobSpec
from fedsilo.data.comparison import declared_schema
from fedsilo.errors import MethodError
from fedsilo.methods import registry
from fedsilo.methods.contract import contract_of
from fedsilo.methods.interface import Exchange
from fedsilo.methods.method import Method
from fedsilo.methods.schedule import rounds_of
from fedsilo.methods.state import Scalar, State
from fedsilo.methods.step import LOSS, Metric, Step
from fedsilo.transforms.order import transforms_of
from fedsilo.transforms.transform import Transform
from fedsilo.wire import Contract, ModelSignature


class JobPlan:
    """The plan of one job.

    :param method: bound to the job.
    :ivar transforms: those of the job, from the method outward.
    """

    def __init__(self, method: Method) -> None:
        self.method, self.spec = method, method.spec
        self.transforms = transforms_of(method)
        self._owners: dict[str, Transform | None] = {}

    @classmethod
    def of(cls, spec: FederatedJobSpec) -> JobPlan:
        """The plan of a job's specification."""
        return cls(registry.bind(spec))

    def describe(self) -> Mapping[str, str]:
        """What the transforms say for people who write the job or decide on it."""
        return {name: text for transform in self.transforms for name, text in transform.describe().items()}

    def owner(self, step: str) -> Transform | None:
        """The transform whose exchange a step is of; None where it is the method's."""
        if step not in self._owners:
            own = (each for each in self.transforms if step in each.steps() or each.message(step) is not None)
            self._owners[step] = None if step in self.method.steps() else next(own, None)
        return self._owners[step]

    def speaker(self, step: str) -> Transform | None:
        """The transform for which a guard answers a task of this step by itself; None where the trainer does."""
        owner = self.owner(step)
        return None if owner is None or owner.message(step) is None else owner

    def is_for_guards(self, tree: str) -> bool:
        """Whether a tree of a task is for guards alone."""
        return any(each.is_for_guards(tree) for each in self.transforms)

    def outer_transforms(self, step: str) -> Sequence[Transform]:
        """The transforms that an exchange of this step passes, from the method outward."""
        owner = self.owner(step)
        return self.transforms if owner is None else self.transforms[self.transforms.index(owner) + 1 :]

    @cached_property
    def exchanges(self) -> list[Exchange]:
        """All exchanges of the job, in order."""
        found = rounds_of(self.method.phases())
        for transform in self.transforms:
            found = transform.plan(found)
        return found

    @property
    def steps(self) -> Mapping[str, Step]:
        """Everything that silos answer: the transforms' steps, and the method's with the job's own metrics."""
        found = {name: self._with_trainer_metrics(step) for name, step in self.method.steps().items()}
        for transform in self.transforms:
            found = {**transform.steps(), **found}
        return found

    def step(self, name: str) -> Step:
        """The step of that name.

        :raises MethodError: when neither the method nor a transform declares it.
        """
        try:
            return self.steps[name]
        except KeyError:
            known = sorted(self.steps)
            raise MethodError(
                f"method {self.method.name} declares no step {name!r}; the job has {known}"
            ) from None

    def contract(self, step: str, signature: ModelSignature, settings: Mapping[str, Scalar]) -> Contract:
        """What a silo may send in answer to a task of this step, tensor by tensor.

        :param settings: those of the signed task.
        :raises MethodError: when nobody declares the step.
        """
        owner = self.owner(step)
        if owner is not None and (message := owner.message(step)) is not None:
            return message
        contract = contract_of(self.step(step), signature, self.method.dimensions(signature, settings))
        contract = replace(contract, algorithm=self.spec.digest_algorithm)
        if self.spec.data.class_names is not None:
            contract = replace(contract, schema=declared_schema(self.spec.data).digest())
        for transform in self.outer_transforms(step):
            contract = transform.contract(contract)
        return contract

    def owns(self, name: str) -> bool:
        """Whether a tree or value of the job's state, or a tree of a task, is a transform's."""
        return any(each.owns(name) for each in self.transforms)

    def keeps(self, name: str) -> bool:
        """Whether a tree or value of a silo's private state is a transform's."""
        return any(each.keeps(name) for each in self.transforms)

    def of_method(self, state: State) -> State:
        """The part of the job's state that is the method's."""
        return _split_state(state, self.owns)[1]

    def with_method(self, state: State, own: State) -> State:
        """The job's state with another part of the method's."""
        return _merge_states(own, _split_state(state, self.owns)[0])

    def kept_by_method(self, private: State) -> State:
        """The part of a silo's private state that is the method's."""
        return _split_state(private, self.keeps)[1]

    def with_kept(self, private: State, own: State) -> State:
        """A silo's private state with another part of the method's."""
        return _merge_states(own, _split_state(private, self.keeps)[0])

    def _with_trainer_metrics(self, step: Step) -> Step:
        """The step, which trains if it has a loss, with what `spec.training.trainerMetrics` adds to that."""
        more = self.spec.training.trainer_metrics
        if more is None or LOSS.name not in step.names:
            return step
        return replace(step, metrics=(*step.metrics, *map(Metric, more)))


def _split_state(state: State, owned: Callable[[str], bool]) -> tuple[State, State]:
    """What is owned of a state, and the rest."""
    if not any(map(owned, (*state.trees, *state.values))):
        return State(), state
    parts = [
        State(
            {name: tree for name, tree in state.trees.items() if owned(name) is mine},
            {name: value for name, value in state.values.items() if owned(name) is mine},
        )
        for mine in (True, False)
    ]
    return parts[0], parts[1]


def _merge_states(state: State, more: State) -> State:
    return State({**state.trees, **more.trees}, {**state.values, **more.values})
