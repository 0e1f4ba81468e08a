"""What a job would move per silo, estimated without data or network: its rounds run on synthetic updates.

Only the first two rounds and the last of a phase are run, for the rounds between them are like the second.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from typing_extensions import override

from fedsilo.engine.context import JobContext
from fedsilo.engine.public_dataset import NoExamples
from fedsilo.engine.workflow import Workflow
from fedsilo.learning.models import initial_model
from fedsilo.learning.seeding import derive_seed
from fedsilo.methods.interface import INITIAL_WEIGHTS, Assignment, Exchange, SiloTask
from fedsilo.methods.method import Method
from fedsilo.methods.state import State, Tree
from fedsilo.updates.round_updates import RoundUpdates
from fedsilo.updates.summation import FlatTensor, HeldTensor
from fedsilo.wire import BlobRef, Contract, ModelSignature


@dataclass
class PhaseTraffic:
    """Bytes per silo and round of one phase, the largest among the silos.

    :param up: tensors of the update, when every class may be disclosed.
    :param down: blobs of the task.
    :param again: of these, what the task before it in the phase did not have; a guard keeps the others.
    """

    phase: str
    step: str
    rounds: int = 0
    up: int = 0
    down: int = 0
    again: int = 0


@dataclass(frozen=True)
class TrafficEstimate:
    """Bytes of a job's tensors.

    :param phases: in order of their first round.
    :param up: bytes that a silo which takes part in every round sends in the whole job.
    :param down: bytes that it receives.
    """

    signature: ModelSignature
    phases: tuple[PhaseTraffic, ...]
    up: int
    down: int


def estimate_traffic(
    method: Method, silos: Sequence[str], shown: Callable[[SiloTask], None] | None = None
) -> TrafficEstimate:
    """Run the aggregator's side of a job on synthetic updates.

    :param silos: references `namespace/name`, in the job's order.
    :param shown: gets the tasks of one of them, as far as its silo half answers them.
    """
    # The file of the initial weights, which need not be on this machine, has as many bytes as those of a seed.
    drawn = initial_model(method.spec) if method.spec.model.initial_weights else None
    context = JobContext.of(method, silos, drawn, public=NoExamples.of(method, Path()))
    workflow = Workflow(method, context)
    phases: dict[tuple[str, str], PhaseTraffic] = {}
    up = down = 0
    with tempfile.TemporaryDirectory() as blobs:
        broadcasts_initial = method.models.hand_out_initial(method.spec)
        rounds = _SyntheticRounds(workflow, context, Path(blobs), broadcasts_initial, shown)
        before: PhaseTraffic | None = None
        for exchange, representative in zip(workflow.exchanges, _representatives(workflow), strict=True):
            phase = exchange.phase
            traffic = phases.setdefault((phase.name, phase.step), PhaseTraffic(phase.name, phase.step))
            traffic.rounds += 1
            if representative:
                rounds.run(exchange, traffic)
            up += traffic.up
            if traffic is before:
                down += traffic.again
            else:  # what every task hands out is kept, whatever the phase
                down += traffic.down - (rounds.initial_bytes if before else 0)
            before = traffic
    return TrafficEstimate(context.signature, tuple(phases.values()), up, down)


def _representatives(workflow: Workflow) -> list[bool]:
    """Whether each exchange is the first, second or last of its phase."""
    places: dict[tuple[str, str], list[int]] = {}
    for place, exchange in enumerate(workflow.exchanges):
        places.setdefault((exchange.phase.name, exchange.phase.step), []).append(place)
    chosen = {place for found in places.values() for place in (*found[:2], found[-1])}
    return [place in chosen for place in range(len(workflow.exchanges))]


class _SyntheticRounds:
    """The method's state between exchanges with synthetic updates, in which every silo takes part.

    :param blobs: directory for the state's trees.
    :ivar initial_bytes: of the initial weights, where every task hands them out.
    """

    def __init__(
        self,
        workflow: Workflow,
        context: JobContext,
        blobs: Path,
        broadcasts_initial_weights: bool,
        shown: Callable[[SiloTask], None] | None,
    ) -> None:
        self._shown = shown
        self._workflow, self._silos, self._blobs = workflow, context.silos, blobs
        self._signature, self._initial = context.signature, context.initial_model()
        self._state = workflow.stored_state(workflow.start(), blobs)
        initial = self._state.refs().get(INITIAL_WEIGHTS) if broadcasts_initial_weights else None
        self.initial_bytes = 0 if initial is None else initial.length
        self._fetched: dict[str, Mapping[str, set[str]]] = {}

    def run(self, exchange: Exchange, traffic: PhaseTraffic) -> None:
        """Run one exchange with synthetic updates, note its bytes, and fold the updates."""
        assigned = self._workflow.assign(self._state, exchange, self._silos)
        broadcast = replace(assigned, state=self._workflow.stored_state(assigned.state, self._blobs))
        assignments = broadcast.tasks
        self._note_blobs(broadcast.state.refs(), assignments, traffic)
        if self._shown is not None and self._workflow.plan.owner(exchange.phase.step) is None:
            self._shown(_task_of(exchange, next(iter(assignments.values())), broadcast.state))
        contracts = {
            silo: self._workflow.contract(exchange.phase.step, assignment.settings)
            for silo, assignment in assignments.items()
        }
        traffic.up = max(traffic.up, *(self._update_bytes(exchange, given) for given in assignments.values()))
        updates = SyntheticUpdates(contracts, self._initial, exchange.round)
        after = self._workflow.aggregate_updates(self._state, exchange, updates)
        self._state = self._workflow.stored_state(after, self._blobs)

    def _update_bytes(self, exchange: Exchange, assignment: Assignment) -> int:
        """Bytes of an update; where it is masked, which doubles them, without the messages that go with it."""
        plan, step = self._workflow.plan, exchange.phase.step
        return plan.contract(step, self._signature, assignment.settings).max_bytes()

    def _note_blobs(
        self, refs: Mapping[str, BlobRef], assignments: Mapping[str, Assignment], traffic: PhaseTraffic
    ) -> None:
        blobs_of = {
            silo: {refs[tree].digest: refs[tree].length for tree in assignment.trees.values()}
            for silo, assignment in assignments.items()
        }
        traffic.down = max(traffic.down, *(sum(blobs.values()) for blobs in blobs_of.values()))
        fetched = self._fetched.get(traffic.phase)
        if fetched is not None:
            new = [
                sum(length for digest, length in blobs.items() if digest not in fetched[silo])
                for silo, blobs in blobs_of.items()
            ]
            traffic.again = max(traffic.again, *new)
        self._fetched[traffic.phase] = {silo: set(blobs) for silo, blobs in blobs_of.items()}


def _task_of(exchange: Exchange, assignment: Assignment, state: State) -> SiloTask:
    trees = {name: state.tree(tree) for name, tree in assignment.trees.items()}
    rounds = exchange.round, exchange.phase_round, exchange.phase_rounds
    return SiloTask(exchange.phase.step, exchange.phase.name, *rounds, trees, assignment.settings)


class SyntheticUpdates(RoundUpdates):
    """Updates as the contract wants them: the initial model, slightly changed, and small positive numbers.

    :param contracts: silo -> what it may send; it sends all of it.
    """

    def __init__(self, contracts: Mapping[str, Contract], model: Tree, round: int) -> None:
        self.silos = tuple(contracts)
        self._contracts, self._model, self._round = contracts, model, round

    @override
    def samples(self, silo: str) -> int:
        """Small, and not the same for every silo."""
        return 1 + self.silos.index(silo)

    @override
    def metrics(self, silo: str) -> Mapping[str, float]:
        """All that the step declares."""
        return dict.fromkeys(self._contracts[silo].metrics, 1.0)

    @override
    def names(self, silo: str, kind: str) -> tuple[str, ...]:
        """All tensors of that kind in the contract."""
        return tuple(block.name for block in self._contracts[silo].tensors if block.kind == kind)

    @override
    def weighted_sum(self, kind: str, weights: Mapping[str, float]) -> Tree:
        """Sum over silos of weight times each tensor of that kind."""
        total: Tree = {}
        for silo, weight in weights.items():
            for name, array in self.tensors(silo, kind).items():
                scaled = np.asarray(weight * array, array.dtype)
                total[name] = total[name] + scaled if name in total else scaled
        return total

    @contextmanager
    @override
    def open_tensors(self, silo: str, kind: str) -> Iterator[Mapping[str, FlatTensor]]:
        """The silo's tensors of that kind by name."""
        yield {name: HeldTensor(array) for name, array in self.tensors(silo, kind).items()}

    @override
    def tensors(self, silo: str, kind: str) -> Tree:
        rng = np.random.default_rng(derive_seed(0, "synthetic", silo, self._round, kind))
        tree: Tree = {}
        for block in self._contracts[silo].tensors:
            if block.kind != kind:
                continue
            like = self._model.get(block.name)
            array = rng.integers(1, 100, block.shape) * 1.0
            if np.issubdtype(block.dtype, np.floating):
                array = array / 5_000 + (like if like is not None and like.shape == block.shape else 0)
            tree[block.name] = np.asarray(array, block.dtype)
        return tree
