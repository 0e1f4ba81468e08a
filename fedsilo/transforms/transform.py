"""A transform is one feature of a job, between what its method does and what goes over the wire.

A job has those of `order.py` that its specification asks for. A broadcast passes them from the method outward, an
update in reverse. Each has a declaration, which needs no torch, and up to three sides that compute: at the aggregator,
in the trainer, and in the guard (`fedsilo.transforms.guard`). Every verb does nothing by default.

What a transform keeps lies beside the method's own trees and values, under names that it owns: in the job's state, in a
silo's private state, and in a task. Nobody else sees them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

from fedsilo.api.faults import Finding
from fedsilo.methods.interface import Assignment, Exchange, Reply, SiloTask, Snapshot
from fedsilo.methods.method import Method
from fedsilo.methods.state import Scalar, State, Tree
from fedsilo.methods.step import Step
from fedsilo.transforms.guard import GuardPlace, GuardSide
from fedsilo.updates.round_updates import RoundUpdates
from fedsilo.wire import Contract, ModelSignature, VerifyKey

if TYPE_CHECKING:
    import numpy as np
    from torch import nn

    from fedsilo.learning.metrics.confusion import EvaluationMetrics

Side = TypeVar("Side")

History = Sequence[Mapping[str, Any]]
"""Records of the complete rounds."""


class Transform:
    """Declaration of a transform in one job.

    :param method: bound to the job.
    """

    def __init__(self, method: Method) -> None:
        self.method, self.spec = method, method.spec

    @classmethod
    def of(cls, method: Method) -> Self | None:
        """The transform of this job; None where the job does not ask for it."""
        return cls(method)

    def owns(self, name: str) -> bool:
        """Whether a tree or value of this name, in the job's state or in a task, belongs to this transform."""
        return False

    def keeps(self, name: str) -> bool:
        """Whether a tree or value of a silo's private state is its own."""
        return False

    def is_for_guards(self, tree: str) -> bool:
        """Whether a tree of a task is for guards alone, which send each other messages."""
        return False

    def steps(self) -> Mapping[str, Step]:
        """Steps of exchanges of its own."""
        return {}

    def message(self, step: str) -> Contract | None:
        """What a guard sends by itself in a step of its own; None of any other step."""
        return None

    def plan(self, exchanges: list[Exchange]) -> list[Exchange]:
        """The job's exchanges with its own among them."""
        return exchanges

    def contract(self, contract: Contract) -> Contract:
        """What may come back for a task, as the transform has it sent."""
        return contract

    def conflicts(self, exchanges: Sequence[Exchange]) -> Iterator[Finding]:
        """Faults of the job: what does not go with this transform.

        :param exchanges: of the whole job.
        """
        return iter(())

    def describe(self) -> Mapping[str, str]:
        """Name -> text, for people who write the job or decide on it."""
        return {}

    def at_aggregator(self, place: Aggregator) -> AggregatorSide:
        """What it does at the aggregator."""
        return AggregatorSide()

    def in_trainer(self) -> TrainerSide:
        """What it does in the trainer."""
        return TrainerSide()

    def in_guard(self, place: GuardPlace) -> GuardSide:
        """What it does in a silo's guard."""
        return GuardSide()


@dataclass(frozen=True)
class Broadcast:
    """What the silos of an exchange are handed.

    :param state: the job's, with the trees that assignments name.
    :param assignments: silo -> what whoever the exchange is of asks of it.
    :param beside: silo -> trees that transforms add: name at the silo -> name in the state.
    """

    state: State
    assignments: Mapping[str, Assignment]
    beside: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def adding(self, trees: Mapping[str, str], silos: Sequence[str] | None = None) -> Broadcast:
        """The broadcast with trees that a transform adds for these silos, all of them by default."""
        asked = self.assignments if silos is None else silos
        more = {silo: {**self.beside.get(silo, {}), **trees} for silo in asked}
        return replace(self, beside={**self.beside, **more})

    @property
    def tasks(self) -> Mapping[str, Assignment]:
        """Silo -> all that its task says and hands out."""
        return {
            silo: replace(given, trees={**given.trees, **self.beside.get(silo, {})})
            for silo, given in self.assignments.items()
        }


@dataclass(frozen=True)
class ReceivedExchange:
    """What has come of an exchange on its way from the wire to whoever it is of.

    :param state: before the exchange.
    :param broadcast: what the silos were handed, computed when it is asked for.
    :param saw: gives the trees of the state that silos saw otherwise than they are, as they saw them.
    :param averaged: (kind, shares by silo) -> what takes the place of a weighted sum; None where nothing does.
    :param figures: of the round's record beside those of the updates, once these are folded.
    """

    state: State
    exchange: Exchange
    updates: RoundUpdates
    broadcast: Callable[[], Broadcast]
    saw: Callable[[], Mapping[str, Tree]] = dict
    averaged: Callable[[str, Mapping[str, float]], Tree] | None = None
    figures: Callable[[], Mapping[str, Any]] = dict

    def sent_tree(self, tree: str) -> Tree:
        """A tree as the silos trained from it."""
        saw = self.saw()
        return saw[tree] if tree in saw else self.state.tree(tree)

    def recording(self, figures: Callable[[], Mapping[str, Any]]) -> ReceivedExchange:
        """What has come, with more figures of the record."""
        before = self.figures
        return replace(self, figures=lambda: {**before(), **figures()})


@dataclass(frozen=True)
class UnfinishedExchange:
    """An exchange after which nothing has come that could be folded.

    :param state: after it.
    """

    state: State


@dataclass(frozen=True)
class Signers:
    """Who answers an aggregator whose silos are places of their own.

    :param job: uid of the job.
    :param keys: silo -> the key that signs for it, in the job's order.
    """

    job: str
    keys: Mapping[str, VerifyKey]


class TestSet(Protocol):
    """A test set that an aggregator holds."""

    def score(self, network: nn.Module) -> EvaluationMetrics:
        """Scores of a network on it."""


@dataclass(frozen=True)
class Aggregator:
    """What the aggregator of a job has beside its state.

    :param context: what the server half is given.
    :param exchanges: of the job, in order.
    :param contract: (step, settings) -> what may come back.
    :param model: state -> the method's model as silos share it.
    :param trained: state -> the network as it would be used.
    :param assigned_again: (state, exchange, silos) -> what computes the exchange's broadcast once more.
    :param own_settings: (exchange, silo) -> settings in which the silo's task differs from those of the others.
    :param test_set: where it holds one.
    :param signers: None where one process has the updates of all silos, so that nothing is hidden from it.
    """

    context: Any
    exchanges: Sequence[Exchange]
    contract: Callable[[str, Mapping[str, Scalar]], Contract]
    model: Callable[[State], Snapshot]
    trained: Callable[[State], nn.Module]
    assigned_again: Callable[[State, Exchange, Sequence[str]], Callable[[], Broadcast]]
    own_settings: Callable[[Exchange, str], Mapping[str, Scalar]]
    test_set: TestSet | None = None
    signers: Signers | None = None

    @property
    def signature(self) -> ModelSignature:
        """Names and shapes of what silos share of the job's model."""
        signature: ModelSignature = self.context.signature
        return signature


class AggregatorSide:
    """What a transform does at the aggregator."""

    def start(self, state: State) -> State:
        """The job's first state."""
        return state

    def select_silos(self, state: State, exchange: Exchange, silos: Sequence[str]) -> Sequence[str]:
        """The silos that an exchange asks, of those that take part in it; where it asks none, it is passed over."""
        return silos

    def assign(self, state: State, exchange: Exchange, silos: Sequence[str]) -> Broadcast:
        """What the silos are handed in an exchange of its own; every transform that has such exchanges says it."""
        raise NotImplementedError(f"{type(self).__name__} has no exchange of its own")

    def send(self, exchange: Exchange, broadcast: Broadcast) -> Broadcast:
        """A broadcast on its way out."""
        return broadcast

    def receive(self, received: ReceivedExchange) -> ReceivedExchange | UnfinishedExchange:
        """Updates on their way in."""
        return received

    def fold(self, received: ReceivedExchange) -> State:
        """State after an exchange of its own."""
        return received.state

    def figures(self, received: ReceivedExchange) -> dict[str, Any]:
        """What the record says of an exchange of its own."""
        return {}

    def model(self, state: State, snapshot: Snapshot) -> Snapshot:
        """The method's model as it would be used."""
        return snapshot

    def network(self, state: State, network: nn.Module) -> nn.Module:
        """A network with the model's tensors, as it takes raw values."""
        return network

    def model_description(self, state: State) -> Mapping[str, Any]:
        """What `model.json` says of it."""
        return {}

    def model_scores(self, state: State, exchange: Exchange, rounds: int) -> Mapping[str, Any]:
        """Figures of the new model for the record.

        :param rounds: number of the job's last round.
        """
        return {}

    def complete_round(self, state: State, history: History, model: Callable[[], Snapshot]) -> State:
        """State after a complete round."""
        return state

    def final_model(self, state: State, history: History) -> tuple[Snapshot | None, int | None]:
        """The model that the job ends with and the number of its round, if not the last; both None otherwise."""
        return None, None

    def is_over(self, history: History) -> bool:
        """Whether the job ends before its last round."""
        return False


@dataclass(frozen=True)
class Work:
    """A task on its way from the wire to the method's silo half, and what is known to answer it.

    :param context: the silo half's.
    :param task: with all its trees.
    :param private: the silo's state before the task, whole.
    :param contract: says what may come back; computed where it is asked for.
    :param owns: whether a tree of a task is a transform's.
    """

    context: Any
    task: SiloTask
    private: State
    contract: Callable[[], Contract]
    owns: Callable[[str], bool]

    @property
    def own_trees(self) -> Mapping[str, Mapping[str, np.ndarray]]:
        """The task's trees of whoever the step is of."""
        return {name: tree for name, tree in self.task.trees.items() if not self.owns(name)}


class TrainerSide:
    """What a transform does in the trainer."""

    def answer(self, work: Work) -> Reply:
        """The reply to a step of its own; every transform with steps that trainers answer has it."""
        raise NotImplementedError(f"{type(self).__name__} has no step of its own")

    def unpack(self, work: Work) -> Work:
        """A task on its way in."""
        return work

    def pack(self, work: Work, reply: Reply) -> Reply:
        """A reply on its way out; its private state is what the silo keeps, of which the transform sets its own."""
        return reply


def acting(sides: Sequence[Side], kind: type[Side], verb: str) -> list[Side]:
    """The sides that do something in a verb, so that a job pays for nothing else.

    :param kind: whose verb does nothing.
    """
    return [side for side in sides if getattr(type(side), verb) is not getattr(kind, verb)]
