"""A silo in memory: its part of guard and trainer, without files, keys and network."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from fedsilo.api.agent import FrozenJob
from fedsilo.api.job import ModelSpec
from fedsilo.api.silo import Silo
from fedsilo.errors import FedsiloError, PolicyRefused, Problem
from fedsilo.learning.models import Model, signature
from fedsilo.methods.interface import Reply, SiloTask
from fedsilo.methods.state import State, Tree, as_stored
from fedsilo.silo import policy
from fedsilo.silo.context import LocalContext
from fedsilo.silo.reply import ReplyMetadata, released_blocks, reply_document
from fedsilo.silo.runner import TaskRunner
from fedsilo.simulation.data import SharedData
from fedsilo.simulation.networks import Networks
from fedsilo.wire import Contract
from fedsilo.wire.tensors import require_finite, spec_of

log = logging.getLogger("fedsilo.simulation")


@dataclass(frozen=True)
class SimulatedTask:
    """What one silo is asked.

    :param name: of the task, for messages.
    :param contract: what may come back.
    :param private: what the silo has kept from its last answer.
    """

    silo: str
    name: str
    task: SiloTask
    contract: Contract
    private: State


@dataclass(frozen=True)
class SimulatedUpdate:
    """What came back: checked, and nothing else than the contract allows.

    :param blocks: payload kind -> tensors, in the contract's order.
    :param private: what the silo keeps; None where that is what it had.
    """

    samples: int
    metrics: Mapping[str, float]
    blocks: Mapping[str, Tree]
    private: State | None

    @property
    def size(self) -> int:
        """Bytes of tensors."""
        return sum(array.nbytes for tree in self.blocks.values() for array in tree.values())


@dataclass(frozen=True)
class Failure:
    """Why there is no answer, in the words in which a guard would report it."""

    reason: str
    message: str


@dataclass(frozen=True)
class SharedContext(LocalContext):
    """What a silo half may use where many silos share a process."""

    networks: Networks = field(kw_only=True)

    def network(self, architecture: ModelSpec) -> Model:
        """A new network, whose weights are of no account."""
        return self.networks.new(architecture)


class SimulatedSilo:
    """One silo of one job.

    :param runner: what answers its tasks, or why nothing does.
    """

    def __init__(self, silo: Silo, job: FrozenJob, runner: TaskRunner | Failure) -> None:
        self.runner = runner
        self._silo = silo
        self._job = job
        self._limits = policy.ReplyLimits.of(job.spec, silo)
        self._admitted: list[Contract] = []

    @property
    def samples(self) -> int:
        """Examples that it trains on."""
        return 0 if isinstance(self.runner, Failure) else len(self.runner.context.train)

    def answer(self, question: SimulatedTask) -> SimulatedUpdate | Failure:
        """Have the method answer, and let go only what contract and policy allow."""
        runner = self.runner
        if isinstance(runner, Failure):
            return runner
        return self.let_go(question, lambda: runner.run(question.task, question.private))

    def let_go(self, question: SimulatedTask, reply: Callable[[], Reply]) -> SimulatedUpdate | Failure:
        """What contract and policy allow of a reply, which is computed only where they allow anything."""
        try:
            self.admit(question.contract)
            return self.checked(question, reply())
        except Exception as error:
            return failure_of(error, question.name)

    def admit(self, contract: Contract) -> None:
        """Ask the silo's policy, once for each contract.

        :raises PolicyRefused: with everything that forbids it.
        """
        if contract not in self._admitted:
            policy.require(self._silo, self._job, policy.Departure.of(contract))
            self._admitted.append(contract)

    def checked(self, question: SimulatedTask, reply: Reply) -> SimulatedUpdate:
        """The reply as an answer.

        :raises PolicyRefused: naming the block and what is wrong with it.
        """
        said, contract = ReplyMetadata.parse(reply_document(reply)), question.contract
        try:
            tensors = {name: as_stored(array) for name, array in reply.tensors.items()}
            found = {name: spec_of(name, array) for name, array in tensors.items()}
            blocks = released_blocks(contract, found, said.support, self._limits.min_samples_per_class)
            metrics = self._limits.metrics(said.metrics)
            contract.check(blocks, metrics)
            require_finite({block.name: tensors[block.name] for block in blocks})
        except Problem as problem:
            text = f"task {question.name}: the trainer's reply breaks the contract: {problem}"
            raise PolicyRefused(text) from problem
        kinds = {
            kind: {block.name: tensors[block.name] for block in blocks if block.kind == kind}
            for kind in contract.kinds()
        }
        private = None if reply.private is None else reply.private.held()
        return SimulatedUpdate(said.samples, metrics, kinds, private)


def open_silos(silos: Iterable[Silo], job: FrozenJob, data: SharedData) -> dict[str, SimulatedSilo]:
    """Every silo with its examples, by reference; one whose data are wrong says so when it is asked."""
    networks = Networks(job.spec.data)
    model = signature(networks.new(job.spec.model))

    def runner(silo: Silo) -> TaskRunner | Failure:
        try:
            train, validation = data.examples(silo)
        except Exception as error:
            return failure_of(error, f"of {silo}")
        minimum = policy.min_samples_per_class(job.spec, silo)
        context = SharedContext(job.spec, model, str(silo), train, validation, minimum, networks=networks)
        return TaskRunner(context)

    return {str(silo): SimulatedSilo(silo, job, runner(silo)) for silo in silos}


def failure_of(error: Exception, task: str) -> Failure:
    """What a trainer or guard would report; what is no error of ours is logged whole."""
    if isinstance(error, FedsiloError):
        return Failure(error.reason, str(error))
    log.error("task %s", task, exc_info=error)
    return Failure("TrainerError", f"{type(error).__name__}: {error}"[:2000])
