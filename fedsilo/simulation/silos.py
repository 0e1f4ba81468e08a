"""A silo in memory: its part of guard and trainer, without files, keys and network."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial

from torch import nn
from typing_extensions import override

from fedsilo.api.agent import FrozenJob
from fedsilo.api.job import ModelSpec
from fedsilo.api.silo import Silo
from fedsilo.data.numbering import SchemaMismatch
from fedsilo.data.schema import Schema
from fedsilo.errors import DataInvalid, FedsiloError
from fedsilo.learning.models import signature
from fedsilo.learning.parameters import parts_of
from fedsilo.methods.interface import Reply, SiloTask
from fedsilo.methods.method import Method
from fedsilo.methods.state import State, Tree
from fedsilo.readiness.announce import unreadable_findings
from fedsilo.readiness.announced import AnnouncedFinding
from fedsilo.silo import policy, reply_limits
from fedsilo.silo.announcement import finding_rules
from fedsilo.silo.context import LocalContext, require_trainable
from fedsilo.silo.release import ReleaseRules, release
from fedsilo.silo.runner import TaskRunner
from fedsilo.silo.secret import Secret
from fedsilo.silo.withholding import vouched_schema, withholds_texts
from fedsilo.simulation.data import SharedData
from fedsilo.simulation.in_memory import HeldReply, new_copy
from fedsilo.simulation.networks import NetworkStore
from fedsilo.tasks.registry import bind
from fedsilo.transforms.conflicts import require_consistent
from fedsilo.transforms.guard import AnsweredTask, GuardPlace
from fedsilo.transforms.plan import JobPlan
from fedsilo.transforms.transform import Transform
from fedsilo.wire import Contract

log = logging.getLogger("fedsilo.simulation")


@dataclass(frozen=True)
class SimulatedTask:
    """One silo's task in an exchange.

    :param id: of the task, for messages.
    :param contract: what may come back.
    :param private: what the silo keeps since its last accepted update.
    :param sent: what it has sent so far.
    """

    silo: str
    id: str
    task: SiloTask
    contract: Contract
    private: State
    sent: policy.EgressTotals = policy.NO_EGRESS


@dataclass(frozen=True)
class SimulatedUpdate:
    """What a silo sends back: checked, with nothing but what the contract allows.

    :param blocks: payload kind -> tensors, in the contract's order.
    :param private: what the silo keeps; None where that is what it had.
    """

    samples: int
    metrics: Mapping[str, float]
    blocks: Mapping[str, Tree]
    private: State | None

    @property
    def size(self) -> int:
        """Bytes of all tensors of the update."""
        return sum(array.nbytes for tree in self.blocks.values() for array in tree.values())


@dataclass(frozen=True)
class SimulatedFailure:
    """Why there is no update, as a guard would report it.

    :param schema: of data that are not named as in the job.
    :param findings: that the data cannot be read, if so.
    """

    reason: str
    message: str
    schema: Schema | None = None
    findings: tuple[AnnouncedFinding, ...] = ()


@dataclass(frozen=True)
class SharedContext(LocalContext):
    """The silo half's view where many silos share a process: networks are copied, not built anew."""

    networks: NetworkStore = field(kw_only=True)

    @override
    def network(self, architecture: ModelSpec) -> nn.Module:
        """A new network with arbitrary weights."""
        return self.networks.new_network(architecture)


class SimulatedSilo:
    """One silo of one job.

    :param runner: what answers its tasks, or why nothing does.
    :param transforms: of the job.
    """

    def __init__(
        self,
        silo: Silo,
        job: FrozenJob,
        runner: TaskRunner | SimulatedFailure,
        transforms: Sequence[Transform] = (),
    ) -> None:
        self.runner = runner
        self._silo = silo
        self._job = job
        self._limits = reply_limits.ReplyLimits.of(job.spec, silo)
        self._method = method = None if isinstance(runner, SimulatedFailure) else runner.method
        self._fewest_examples = (
            None if method is None else method.training.min_examples_per_update(method.spec)
        )
        place = GuardPlace(str(silo), Secret().generator)
        self._sides = [transform.in_guard(place) for transform in transforms]
        self._admitted: list[Contract] = []
        rules = silo.spec.policy
        passing = (rules.not_before, rules.not_after, rules.max_bytes_per_job, rules.max_answered_rounds)
        self._is_settled = passing == (None,) * len(passing)

    @property
    def schema(self) -> Schema | None:
        """What it announces of its data; None where they could not be read."""
        found = self.runner
        schema = found.schema if isinstance(found, SimulatedFailure) else found.context.schema
        if schema is None or not withholds_texts(self._job.spec, self._silo):
            return schema
        return vouched_schema(schema, self._job.spec, self._silo)

    @property
    def findings(self) -> tuple[AnnouncedFinding, ...]:
        """What it tells of its data, where the job asks for that and its policy permits it."""
        found = self.runner
        findings = found.findings if isinstance(found, SimulatedFailure) else found.context.findings
        return finding_rules(self._job.spec, [self._silo]).permitted_findings(findings or ())

    @property
    def samples(self) -> int:
        """Examples that it trains on."""
        return 0 if isinstance(self.runner, SimulatedFailure) else len(self.runner.context.train)

    def answer(self, task: SimulatedTask) -> SimulatedUpdate | SimulatedFailure:
        """Run the task, and release what contract and policy allow."""
        runner = self.runner
        if isinstance(runner, SimulatedFailure):
            return runner
        # Dictionaries of its own: what a silo half does to them is for no other silo.
        trees = {name: dict(tree) for name, tree in task.task.trees.items()}
        return self.release(task, lambda: runner.run(replace(task.task, trees=trees), task.private))

    def release(
        self, task: SimulatedTask, compute: Callable[[], Reply]
    ) -> SimulatedUpdate | SimulatedFailure:
        """What contract and policy allow of a reply, which is computed only where the policy admits the contract."""
        try:
            self._require_permitted(task)
            return self._released_update(task, compute())
        except (Exception, SystemExit) as error:
            return failure_of(error, task.id)

    def _require_permitted(self, task: SimulatedTask) -> None:
        """Check the task's contract against the silo's policy, once where the answer cannot change.

        :raises PolicyRefused: with everything that forbids it.
        """
        if self._is_settled and task.contract in self._admitted:
            return
        departure = policy.EgressRequest.of(task.contract, task.task.round, self._fewest_examples)
        policy.require(self._silo, self._job, departure, datetime.now(UTC), task.sent)
        self._admitted.append(task.contract)

    def _released_update(self, task: SimulatedTask, reply: Reply) -> SimulatedUpdate:
        """The reply as an update.

        :raises PolicyRefused: naming the block and what is wrong with it.
        """
        answer, contract, asked = HeldReply(reply, task.task), task.contract, task.task
        answered = AnsweredTask(task.id, asked.step, asked.phase, asked.round)
        rules = ReleaseRules(self._limits, self._sides)
        found = release(answered, contract, answer, rules, partial(new_copy, contract))
        private = None if reply.private is None else reply.private.in_memory()
        return SimulatedUpdate(found.leaving.samples, found.leaving.metrics, found.update, private)


def open_silos(
    silos: Iterable[Silo], job: FrozenJob, method: Method, data: SharedData
) -> dict[str, SimulatedSilo]:
    """Every silo with its examples, by reference; one whose data are wrong fails its tasks.

    :param method: bound to the job.
    :raises ManifestInvalid: when features of the job do not go together.
    """
    require_consistent(method)  # once: it looks at all exchanges
    transforms = JobPlan(method).transforms
    networks = NetworkStore(job.spec.data, job.spec.task)
    network = networks.new_network(job.spec.model)
    require_trainable(job.spec, network)
    whole = signature(network, bind(job.spec.task, job.spec.data))
    parts = parts_of(method.spec.model.parameters, network)
    model = parts.signature(whole) if parts else whole

    tried = False

    def runner(silo: Silo) -> TaskRunner | SimulatedFailure:
        nonlocal tried
        try:
            train, validation = data.examples(silo)
            schema, findings = data.schema(silo), data.findings(silo)
        except (Exception, SystemExit) as error:
            return failure_of(error, f"of {silo}")
        minimum = reply_limits.min_samples_per_class(job.spec, silo)
        values = reply_limits.min_samples_per_feature(job.spec, silo)
        context = SharedContext(
            method.spec,
            model,
            str(silo),
            train,
            validation,
            minimum,
            values,
            parts=parts,
            networks=networks,
            schema=schema,
            findings=findings,
            min_samples_per_update=reply_limits.min_samples_per_update(silo.spec.policy),
        )
        made = TaskRunner(method, context, tried=tried)
        tried = tried or len(train) > 0
        return made

    return {str(silo): SimulatedSilo(silo, job, runner(silo), transforms) for silo in silos}


def failure_of(error: BaseException, task: str) -> SimulatedFailure:
    """What a trainer or guard would report; an error that is not fedsilo's is logged with its traceback."""
    if isinstance(error, SchemaMismatch):
        return SimulatedFailure(error.reason, str(error), error.schema)
    if isinstance(error, DataInvalid):
        return SimulatedFailure(error.reason, str(error), findings=unreadable_findings(error))
    if isinstance(error, FedsiloError):
        return SimulatedFailure(error.reason, str(error))
    log.error("task %s", task, exc_info=error)
    return SimulatedFailure("TrainerError", f"{type(error).__name__}: {error}"[:2000])
