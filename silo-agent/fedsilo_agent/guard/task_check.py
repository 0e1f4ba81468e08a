"""Whether a task may be answered: signature, job, contract, and the silo's own policy.

The contract is derived here, from the immutable SiloAgent, the method's declaration and the model's signature as
this silo's own trainer computed it; a task that asks for anything else is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property, reduce

from fedsilo.api.agent import SiloAgent
from fedsilo.api.digest import spec_digest
from fedsilo.api.job import FederatedJobSpec
from fedsilo.api.silo import Silo
from fedsilo.api.silo_policy import PrivacyBudget
from fedsilo.errors import FedsiloError, PolicyRefused, Problem
from fedsilo.files.digests import short_digest
from fedsilo.methods import registry
from fedsilo.methods.method import Method, declaring
from fedsilo.readiness.announced import FindingRules
from fedsilo.silo import policy, reply_limits
from fedsilo.silo.announcement import Schema, finding_rules, require_declared
from fedsilo.silo.members import member_keys
from fedsilo.silo.secret import Secret
from fedsilo.silo.volume import Volume
from fedsilo.silo.withholding import vouched_schema, withholds_texts
from fedsilo.tasks.interface import OWN_TASK_NAME
from fedsilo.tasks.registry import bind, kind_of
from fedsilo.transforms.conflicts import require_consistent
from fedsilo.transforms.guard import GuardIdentity, GuardPlace
from fedsilo.transforms.plan import JobPlan
from fedsilo.wire import Contract, ModelSignature, SigningKey, Task, VerifyKey, open_task, require_algorithm
from fedsilo_agent.guard.current_policy import PresentPolicy
from fedsilo_agent.guard.exchanges import ExchangeKey, Schedule, initial_weights_of

TASK_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
"""Tasks name files and directories of the volume; a name with a slash would lead out of it."""

RESERVED_FILES = frozenset({"signature.json", "failed.json", "personal.json", "personal.safetensors"})
"""Files of the volume beside which those of tasks lie."""


@dataclass(frozen=True)
class TaskCheck:
    """The rules of one job in one silo.

    What may leave is what both policies permit: the one that the job was admitted under, and the present one. So a
    policy that becomes stricter holds at once, and whoever can write the present one can make nothing more leave.

    :param silo: the Silo as it was when the job was admitted.
    :param present: the Silo as it is now, read again for each check; None where nobody can change it.
    :param clock: the time, for the policy's dates.
    """

    agent: SiloAgent
    silo: Silo
    present: PresentPolicy | None = None
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)

    @property
    def reference(self) -> str:
        """`namespace/name` of the silo."""
        return f"{self.silo.metadata.namespace}/{self.silo.metadata.name}"

    @property
    def limits(self) -> reply_limits.ReplyLimits:
        """What may leave of a reply of the trainer.

        :raises PolicyRefused: when the present policy cannot be read.
        """
        first, *others = (
            reply_limits.ReplyLimits.of(self.agent.spec.job.spec, silo) for silo in self._silos()
        )
        return reduce(reply_limits.ReplyLimits.and_those, others, first)

    @property
    def budget(self) -> PrivacyBudget | None:
        """The budget of the job's dataset, as the institution has it now.

        :raises PolicyRefused: when the present policy cannot be read.
        """
        *_, silo = self._silos()
        return silo.spec.policy.budget_of(self.agent.spec.job.spec.data.dataset)

    @property
    def finding_rules(self) -> FindingRules:
        """What may be told of the silo's data before round 1.

        :raises PolicyRefused: when the present policy cannot be read.
        """
        return finding_rules(self.agent.spec.job.spec, self._silos())

    @property
    def withholds_texts(self) -> bool:
        """Whether no text of the trainer's may leave; so it is too while the present policy cannot be read."""
        try:
            return any(withholds_texts(self.agent.spec.job.spec, silo) for silo in self._silos())
        except PolicyRefused:
            return True

    def has_room(self, size: int, sent: policy.EgressTotals) -> bool:
        """Whether the silo's policy has room for so many bytes of text; there is none while it cannot be read.

        :param sent: what has left already.
        """
        try:
            return all(policy.has_room(silo, size, sent) for silo in self._silos())
        except PolicyRefused:
            return False

    def require_room_for_names(self, size: int, sent: policy.EgressTotals) -> None:
        """Check that the silo's policy has room for so many bytes of names and findings of the data.

        :param sent: what has left already.
        :raises PolicyRefused: when it has not, or cannot be read.
        """
        for silo in self._silos():
            policy.require_room_for_names(silo, size, sent)

    def has_exchange(self, key: ExchangeKey) -> bool:
        """Whether the job has an exchange of this round and phase, as far as its method's declaration can say so."""
        try:
            return self.schedule.has(key)
        except FedsiloError:
            return False

    def told_schema(self, schema: Schema) -> Schema | None:
        """What may be told of the names in the trainer's data; None where nothing is.

        :raises ManifestInvalid: when the institution's manifest of the dataset cannot be used.
        """
        if not self.withholds_texts:
            return schema
        return vouched_schema(schema, self.agent.spec.job.spec, self.silo)

    def require_consistent(self) -> None:
        """Check that the job asks for nothing that does not go together, before anything is said.

        :raises ManifestInvalid: naming the field.
        :raises MethodError: when a third party's declaration fails.
        """
        _ = self._consistency_check

    @cached_property
    def _consistency_check(self) -> None:
        """Asked once where all goes together: every task asks, and the answer looks at all exchanges."""
        with declaring(self.method):
            require_consistent(self.method)

    @cached_property
    def _spec_digest(self) -> str:
        return spec_digest(self.agent.spec.job.spec)

    @cached_property
    def method(self) -> Method:
        """The job's federated method, with the settings of the job."""
        return registry.bind(self.agent.spec.job.spec)

    @cached_property
    def plan(self) -> JobPlan:
        """What the job does."""
        return JobPlan(self.method)

    @cached_property
    def _fewest_examples(self) -> int | None:
        with declaring(self.method):
            return self.method.training.min_examples_per_update(self.method.spec)

    @cached_property
    def schedule(self) -> Schedule:
        """The exchanges of the job.

        :raises MethodError: when a third party's declaration fails.
        """
        with declaring(self.method):
            return Schedule(self.plan.exchanges)

    def open(self, sealed: bytes) -> Task:
        """Open a task that the job's aggregator really gave to this silo.

        The specification is the one that this agent holds, by its content and not by the digest that is written
        beside it: the contract is derived from what a person has approved.

        :raises Problem: when it is not signed by the job's key, is of another job, silo or specification, or has
            a name that is not one of a file.
        """
        trust, job = self.agent.spec.trust, self.agent.spec.job
        task = open_task(sealed, VerifyKey.from_text(trust.task_key))
        if not TASK_NAME.fullmatch(task.task) or task.task in RESERVED_FILES:
            raise Problem(
                "malformed",
                f"the task is called {task.task!r}, which is no name of a file, or that of another one",
            )
        if task.job != job.uid:
            raise Problem("wrong-job", f"the task is of job {task.job}, this agent is of job {job.uid}")
        if task.silo != self.reference:
            raise Problem("wrong-sender", f"the task is for silo {task.silo}, this is {self.reference}")
        if task.spec_digest.hex() != self._spec_digest:
            raise Problem(
                "task-mismatch", f"the task is of specification {task.spec_digest.hex()[:12]}, not ours"
            )
        given, found = job.spec.model.initial_weights, initial_weights_of(task)
        if given is not None and found is not None and found != given.sha256:
            raise Problem(
                "task-mismatch",
                f"the task hands out initial weights {short_digest(found)}, the job's are {given.sha256[:12]}",
            )
        require_algorithm(task, job.spec.digest_algorithm, None if given is None else given.sha256)
        return task

    def contract(self, task: Task, signature: ModelSignature, schema: Schema | None = None) -> Contract:
        """What may leave in answer to the task, as far as the method is concerned.

        :param schema: of the trainer's data, as it announced it.
        :raises PolicyRefused: when it is not what the task asks for.
        """
        require_declared(self.agent.spec.job.spec.data, schema)
        _check_signature(signature, self.agent.spec.job.spec)
        method = self.method
        with declaring(method):
            try:
                contract = self.plan.contract(task.step, signature, task.settings)
            except FedsiloError as error:
                raise PolicyRefused(f"task {task.task}: {error}") from error
        if bytes.fromhex(contract.digest()) != task.contract:
            raise PolicyRefused(
                f"task {task.task}: its contract {task.contract.hex()[:12]} is not {contract.digest()[:12]}, which "
                f"this silo derived for step {task.step!r} of method {method.name}; nothing is sent"
            )
        return contract

    def require_permitted(self, task: Task, contract: Contract, sent: policy.EgressTotals) -> None:
        """Check that the silo's policy permits the answer now.

        :param sent: what has left in other exchanges.
        :raises PolicyRefused: with everything that forbids it.
        """
        departure = policy.EgressRequest.of(contract, task.round, self._fewest_examples)
        now = self.clock()
        for silo in self._silos():
            policy.require(silo, self.agent.spec.job, departure, now, sent)

    def guard_place(self, volume: Volume, key: SigningKey) -> GuardPlace:
        """What the job's transforms have in this guard.

        :param key: with which this silo signs.
        """
        members, exchange_of = member_keys(self.agent.spec), self.schedule.exchange_of
        exchanges = self.plan.exchanges
        own = GuardIdentity(self.agent.spec.job.uid, key, members, exchange_of, exchanges, volume.sums)
        return GuardPlace(self.reference, Secret(volume.guard_secret).generator, own)

    def _silos(self) -> Iterator[Silo]:
        yield self.silo
        if self.present is not None:
            yield self.present.read()


def _check_signature(signature: ModelSignature, spec: FederatedJobSpec) -> None:
    """Whether classes and feature are those of the job and of the model's own classifier."""
    if signature.classes not in _permitted_classes(spec):
        classes = spec.data.class_count
        raise PolicyRefused(f"the trainer's model has {signature.classes} classes, the job {classes}")
    classes = signature.classes
    for tensor in signature.tensors:
        if classes and tensor.name == "classifier.weight" and tensor.shape != (classes, signature.feature):
            raise PolicyRefused(
                f"the trainer's classifier has shape {tensor.shape}, its signature says {(classes, signature.feature)}"
            )


def _permitted_classes(spec: FederatedJobSpec) -> tuple[int, ...]:
    """Classes that the model may tell apart, 0 for none; of an own task the guard cannot know, for it does not import
    what is the job's own."""
    if kind_of(spec.task) == OWN_TASK_NAME:
        return 0, spec.data.class_count
    return (spec.data.class_count if bind(spec.task, spec.data).single_label else 0,)
