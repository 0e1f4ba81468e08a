"""What a job would move per silo: its server half is played through with invented answers, without data or network.

Only the first two rounds and the last of a phase are played, for the rounds between them are like the second.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedsilo.engine.context import JobContext
from fedsilo.learning.models import build_model, signature
from fedsilo.learning.seeding import derive_seed
from fedsilo.methods.interface import EVALUATE, Assignment, Exchange
from fedsilo.methods.method import Method
from fedsilo.methods.state import State, Tree
from fedsilo.wire import Contract, ModelSignature, write_blob


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
    """What came of it.

    :param phases: in order of their first round.
    :param up: bytes of the whole job for a silo that takes part in every round; likewise `down`.
    """

    signature: ModelSignature
    phases: tuple[PhaseTraffic, ...]
    up: int
    down: int


def estimate_traffic(method: Method, silos: Sequence[str]) -> TrafficEstimate:
    """Play the server half of a job.

    :param silos: references `namespace/name`, in the job's order.
    """
    spec = method.spec
    model = signature(build_model(spec.model, spec.data, seed=0))
    job = JobContext(spec, model, tuple(silos), method.averaging)
    exchanges = method.exchanges()
    phases: dict[tuple[str, str], PhaseTraffic] = {}
    up = down = 0
    with tempfile.TemporaryDirectory() as blobs:
        server = _SyntheticServer(job, method, Path(blobs))
        before: PhaseTraffic | None = None
        for exchange, played in zip(exchanges, _played(exchanges), strict=True):
            phase = exchange.phase
            traffic = phases.setdefault((phase.name, phase.step), PhaseTraffic(phase.name, phase.step))
            traffic.rounds += 1
            if played:
                server.play(exchange, traffic)
            up += traffic.up
            down += traffic.again if traffic is before else traffic.down
            before = traffic
    return TrafficEstimate(model, tuple(phases.values()), up, down)


def _played(exchanges: Sequence[Exchange]) -> list[bool]:
    """Whether each exchange is the first, second or last of its phase."""
    places: dict[tuple[str, str], list[int]] = {}
    for place, exchange in enumerate(exchanges):
        places.setdefault((exchange.phase.name, exchange.phase.step), []).append(place)
    chosen = {place for found in places.values() for place in (*found[:2], found[-1])}
    return [place in chosen for place in range(len(exchanges))]


class _SyntheticServer:
    """The server half and its state, between invented answers."""

    def __init__(self, job: JobContext, method: Method, blobs: Path) -> None:
        self._job, self._method, self._blobs = job, method, blobs
        self._half = method.server()
        self._initial = job.initial_model()
        self._state = self._half.start(job).store(blobs)
        self._held: Mapping[str, set[str]] = {}
        self._phase = ""

    def play(self, exchange: Exchange, traffic: PhaseTraffic) -> None:
        """One exchange: note its bytes, and fold invented answers."""
        step, state = exchange.phase.step, self._state
        if step == EVALUATE and self._job.spec.evaluation.test_dataset is not None:
            return  # the silos' own models are there already
        if step == EVALUATE:
            snapshot = self._half.model(self._job, state)
            traffic.down = max(traffic.down, write_blob(snapshot.tree, self._blobs).length)
            traffic.again = traffic.down
            return
        assigned = self._half.assign(self._job, state, exchange, self._job.silos)
        self._note_blobs(state, assigned, traffic)
        contracts = {
            silo: self._method.contract(step, self._job.signature, given.settings)
            for silo, given in assigned.items()
        }
        traffic.up = max(traffic.up, *(contract.max_bytes() for contract in contracts.values()))
        answers = SyntheticUpdates(contracts, self._initial, exchange.round)
        self._state = self._half.aggregate(self._job, state, exchange, answers).store(self._blobs)

    def _note_blobs(self, state: State, assigned: Mapping[str, Assignment], traffic: PhaseTraffic) -> None:
        refs = state.refs()
        given = {
            silo: {refs[tree].digest: refs[tree].length for tree in assignment.trees.values()}
            for silo, assignment in assigned.items()
        }
        traffic.down = max(traffic.down, *(sum(blobs.values()) for blobs in given.values()))
        if traffic.phase == self._phase:
            new = [
                sum(length for digest, length in blobs.items() if digest not in self._held[silo])
                for silo, blobs in given.items()
            ]
            traffic.again = max(traffic.again, *new)
        self._phase, self._held = traffic.phase, {silo: set(blobs) for silo, blobs in given.items()}


class SyntheticUpdates:
    """Answers as the contract asks for them: the initial model, a little changed, and small positive numbers.

    :param contracts: silo -> what it may send; it sends all of it.
    """

    def __init__(self, contracts: Mapping[str, Contract], model: Tree, round: int) -> None:
        self._contracts, self._model, self._round = contracts, model, round

    @property
    def silos(self) -> tuple[str, ...]:
        """All silos of the round."""
        return tuple(self._contracts)

    def samples(self, silo: str) -> int:
        """Small, and not the same for every silo."""
        return 1 + self.silos.index(silo)

    def metrics(self, silo: str) -> Mapping[str, float]:
        """All that the step declares."""
        return dict.fromkeys(self._contracts[silo].metrics, 1.0)

    def names(self, silo: str, kind: str) -> Sequence[str]:
        """All tensors of that kind in the contract."""
        return [block.name for block in self._contracts[silo].blocks if block.kind == kind]

    def weighted_sum(self, kind: str, weights: Mapping[str, float]) -> Tree:
        """As the interface says."""
        total: Tree = {}
        for silo, weight in weights.items():
            for name, array in self.tensors(silo, kind).items():
                scaled = np.asarray(weight * array, array.dtype)
                total[name] = total[name] + scaled if name in total else scaled
        return total

    def tensors(self, silo: str, kind: str) -> Tree:
        """The same arrays for the same silo, round and kind."""
        rng = np.random.default_rng(derive_seed(0, "rehearsal", silo, self._round, kind))
        tree: Tree = {}
        for block in self._contracts[silo].blocks:
            if block.kind != kind:
                continue
            like = self._model.get(block.name)
            array = rng.integers(1, 100, block.shape) * 1.0
            if np.issubdtype(block.dtype, np.floating):
                array = array / 5_000 + (like if like is not None and like.shape == block.shape else 0)
            tree[block.name] = np.asarray(array, block.dtype)
        return tree
