"""A silo's policy applied to one job: the part that needs no Kubernetes, no data and no model.

The silo's controller applies it before any pod exists, to what the method declares. The guard applies it to every task,
with the contract that it derived. Both call this module, so that their decisions cannot differ.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import datetime

from fedsilo.api.agent import FrozenJob
from fedsilo.api.job import FederatedJobSpec
from fedsilo.api.silo import Silo
from fedsilo.api.silo_policy import PrivacyBudget, SiloPolicy
from fedsilo.api.text import comma_separated, count_text, join_names
from fedsilo.errors import FedsiloError, MethodError, PolicyRefused
from fedsilo.methods import registry
from fedsilo.methods.components.feature_statistics import KIND
from fedsilo.methods.step import Payload
from fedsilo.payload_kinds import SECURE_AGGREGATION
from fedsilo.silo.budget_figures import SpentBudget, stated_epsilon
from fedsilo.silo.reply_limits import min_samples_per_update
from fedsilo.transforms.evaluation.sums import metrics_that_send
from fedsilo.transforms.plan import JobPlan
from fedsilo.transforms.third_party.registry import missing_transforms
from fedsilo.wire import Contract
from fedsilo.wire.tensors import TensorSpec


@dataclass(frozen=True)
class EgressRequest:
    """What would leave a silo in answer to a task.

    :param kinds: payload kinds.
    :param size: bytes of tensors, as far as they are known.
    :param round: that it is an answer in; None where a job as a whole is asked about.
    :param examples: fewest that an update of training may follow from, `TrainingTraits.min_examples_per_update`.
    """

    kinds: Collection[str]
    size: int
    round: int | None = None
    examples: int | None = None

    @classmethod
    def of(cls, contract: Contract, round: int, examples: int | None) -> EgressRequest:
        """What a contract allows, known to the byte; of a sum, what goes into it."""
        within = contract.summed or contract
        kinds = [kind for kind in within.kinds() if kind != SECURE_AGGREGATION]
        return cls(kinds, contract.max_bytes(), round, examples)


@dataclass(frozen=True)
class EgressTotals:
    """What has left a silo for a job so far.

    :param rounds: those in which it answered.
    :param size: bytes of tensors of all updates, each counted once, and of texts that a trainer has a part in.
    :param here: the bytes among them that left in the exchange that is asked about.
    """

    rounds: frozenset[int] = frozenset()
    size: int = 0
    in_exchange: int = 0

    def plus(self, round: int, size: int) -> EgressTotals:
        """What has left the silo after one more update."""
        return EgressTotals(self.rounds | {round}, self.size + size)


class PolicyForbids(PolicyRefused):
    """What a silo's policy says against a job, in words of the policy and the job alone."""


ROUNDING = 1e-9
"""Tolerance for sums of epsilons: jobs that fill a budget together fit into it."""

NO_EGRESS = EgressTotals()
"""What has left before a job begins."""


def declared_egress(spec: FederatedJobSpec) -> EgressRequest | None:
    """What the job's method may ask for in any step; None where no installed package has the method, or a transform.

    The size is a lower bound for the largest step: the tensors of the model, and dimensions that follow from them,
    are known only when a trainer has built it.

    :raises ManifestInvalid: when the method does not take its configuration.
    :raises MethodError: when a third party's declaration fails.
    """
    if unknown_component(spec) is not None:
        return None
    method = registry.bind(spec)
    try:
        steps = tuple(JobPlan(method).steps.values())
        kinds = {payload.kind for step in steps for payload in step.payloads}
        # How few bytes an encoding or a transform makes of a model's tensors, the guard sees in the contract.
        as_they_are = not (spec.upload.is_encoded or spec.transforms)
        known = [[p for p in step.payloads if p.kind != "model" or as_they_are] for step in steps]
        examples = method.training.min_examples_per_update(spec)
        sizes = [
            sum(_least_bytes(payload, spec.data.class_count) for payload in payloads) for payloads in known
        ]
    except FedsiloError:
        raise
    except Exception as error:
        text = f"the declaration of method {method.name} failed: {type(error).__name__}: {error}"
        raise MethodError(text) from error
    return EgressRequest(sorted(kinds), max(sizes, default=0), examples=examples)


def unknown_component(spec: FederatedJobSpec) -> str | None:
    """What the job names that no installed package has: `method mystery`, `transform sign`; None where all is here."""
    if spec.method.name not in registry.names():
        return f"method {spec.method.name}"
    absent = [f"transform {name}" for name in missing_transforms(spec)]
    return comma_separated(absent) if absent else None


def _least_bytes(payload: Payload, classes: int) -> int:
    if payload.name is None:
        return 0
    known = [classes if size == "classes" else size for size in payload.shape]
    shape = tuple(size if isinstance(size, int) else 1 for size in known)
    one = math.prod(shape) * TensorSpec(payload.name, (), payload.dtype).nbytes
    return one * classes if payload.per_class else one


def objections(
    silo: Silo, job: FrozenJob, departure: EgressRequest | None, now: datetime, sent: EgressTotals = NO_EGRESS
) -> list[str]:
    """Everything in the policy that forbids the job, each with field, value and remedy; none when all is well.

    :param departure: what would leave; None where that is not known: then only the rest is checked.
    :param sent: what has left before; nothing where a job is asked about that has not begun.
    """
    rules = silo.spec.policy
    found = [*_against_job(rules, job), *_against_budget(rules, job), *_against_dates(rules, now)]
    return found if departure is None else [*found, *_against_departure(rules, job, departure, sent)]


def require(silo: Silo, job: FrozenJob, departure: EgressRequest, now: datetime, sent: EgressTotals) -> None:
    """Check that nothing in the policy forbids the job.

    :raises PolicyForbids: with everything that does.
    """
    refused = objections(silo, job, departure, now, sent)
    if refused:
        raise PolicyForbids(". ".join(f"silo {silo.metadata.name}: {text}" for text in refused))


def has_room(silo: Silo, size: int, sent: EgressTotals) -> bool:
    """Whether so many bytes of text may leave beside what has left already."""
    here, all_ = silo.spec.policy.max_bytes_per_round, silo.spec.policy.max_bytes_per_job
    fits_here = here is None or sent.in_exchange + size <= here.value
    return fits_here and (all_ is None or sent.size + size <= all_.value)


def require_room_for_names(silo: Silo, size: int, sent: EgressTotals) -> None:
    """Check that so many bytes of names and findings, which are of no round, may leave beside what has left already.

    :raises PolicyForbids: when the bytes of the job do not suffice.
    """
    limit = silo.spec.policy.max_bytes_per_job
    if limit is not None and sent.size + size > limit.value:
        before = f"{sent.size} bytes have left and " if sent.size else ""
        raise PolicyForbids(
            f"silo {silo.metadata.name}: policy.maxBytesPerJob is {limit}, {before}the names and findings of the data "
            f"have {size} bytes; use shorter names, or ask the institution for more"
        )


def _against_job(policy: SiloPolicy, job: FrozenJob) -> Iterator[str]:
    method, rounds = job.spec.method.name, job.spec.training.rounds
    if policy.methods is not None and method not in policy.methods:
        remedy = choose(policy.methods, "spec.method.name")
        yield f"policy.methods allows {comma_separated(policy.methods)}, not {method}; {remedy}"
    yield from _against_transforms(policy, job.spec)
    if policy.job_namespaces is not None and job.namespace not in policy.job_namespaces:
        remedy = choose(policy.job_namespaces, "metadata.namespace")
        yield f"policy.jobNamespaces allows {comma_separated(policy.job_namespaces)}, not {job.namespace}; {remedy}"
    if policy.max_rounds is not None and rounds > policy.max_rounds:
        remedy = f"make spec.training.rounds {policy.max_rounds} or less, or ask the institution for more"
        yield f"policy.maxRounds is {policy.max_rounds}, the job has {rounds} rounds; {remedy}"
    if policy.min_silos is not None and _least_silos(job.spec) < policy.min_silos:
        least = _least_silos(job.spec) or "an unknown number"
        remedy = (
            f"make spec.participation.minSilos {policy.min_silos} or more, with as many silos, or ask the institution "
            "to allow fewer"
        )
        yield f"policy.minSilos is {policy.min_silos}, a round of the job needs the answers of {least}; {remedy}"


def _against_transforms(policy: SiloPolicy, spec: FederatedJobSpec) -> Iterator[str]:
    """Code of other packages that changes what leaves: none runs that the institution has not named."""
    allowed = policy.transforms or ()
    if refused := [asked.name for asked in spec.transforms or () if asked.name not in allowed]:
        remedy = choose(allowed, "spec.transforms")
        yield f"policy.transforms allows {comma_separated(allowed)}, not {comma_separated(refused)}; {remedy}"


def _against_budget(policy: SiloPolicy, job: FrozenJob) -> Iterator[str]:
    """What a job states beforehand against the whole budget; what is left of it the guard knows, by its ledger."""
    dataset, private = job.spec.data.dataset, job.spec.privacy.differential_privacy
    budget, field = policy.budget_of(dataset), "spec.privacy.differentialPrivacy"
    if budget is None:
        return
    permits = (
        f"policy.privacyBudget permits epsilon {budget.epsilon:g} at delta {budget.delta:g} about {dataset}"
    )
    if private is None:
        yield f"{permits}, and the job has no {field}; add it"
    elif private.unit not in (budget.unit, "silo"):
        remedy = f"write {field}.unit: {budget.unit}, or ask the institution for another budget"
        yield f"{permits} for each {budget.unit}, and the job protects each {private.unit}; {remedy}"
    elif (stated := stated_epsilon(job.spec, budget.delta)) is None:
        yield f"{permits}, and the job states noise in place of epsilon; write {field}.epsilon"
    elif private.unit == "silo":
        if stated > budget.epsilon:
            remedy = f"ask the institution for more, or use unit {budget.unit}"
            yield f"{permits}, and {_of_updates(stated, budget)}; {remedy}"
    elif stated > budget.epsilon or private.delta > budget.delta:
        wanted = f"epsilon {stated:g} at delta {private.delta:g}"
        yield f"{permits}, the job wants {wanted}; ask for less, or ask the institution for more"


def _of_updates(epsilon: float, budget: PrivacyBudget) -> str:
    """What a job with `unit: silo` comes to, whose own epsilon is of sums that nobody but the aggregator makes."""
    return f"of one {budget.unit} the job's updates, each seen by itself, tell epsilon {epsilon:.4g} with unit silo"


def over_budget(silo: Silo, job: FrozenJob, spent: SpentBudget) -> str | None:
    """Why the dataset's budget has no room for a job that has not begun; None where it has.

    Epsilons of jobs are added, which is more than they come to together: the ledger composes them.
    """
    budget = silo.spec.policy.budget_of(job.spec.data.dataset)
    stated = None if budget is None else stated_epsilon(job.spec, budget.delta)
    if budget is None or stated is None:
        return None
    if spent.epsilon + spent.reserved + stated <= budget.epsilon + ROUNDING:
        return None
    others = f" and {spent.reserved:.4g} is reserved for jobs that it has admitted" if spent.reserved else ""
    remedy = "ask for less, or ask the institution for more"
    if spent.reserved:
        remedy = f"{remedy}, or wait until those have ended"
    return (
        f"policy.privacyBudget permits epsilon {budget.epsilon:g} about {budget.dataset}, of which "
        f"{spent.epsilon:.4g} is spent{others}, and the job wants {stated:.4g}; {remedy}"
    )


def _least_silos(spec: FederatedJobSpec) -> int:
    """Answers that every round of the job needs; 0 where that depends on how many silos its selector finds."""
    asked = spec.participation.sample_size(len(spec.silos.refs))
    return spec.participation.quorum(asked) if asked else spec.participation.min_silos or 0


def _against_dates(policy: SiloPolicy, now: datetime) -> Iterator[str]:
    if policy.not_before is not None and now < policy.not_before.moment:
        yield f"policy.notBefore is {policy.not_before}; wait until then, or ask the institution for an earlier time"
    if policy.not_after is not None and now > policy.not_after.moment:
        yield f"policy.notAfter is {policy.not_after}, which is over; ask the institution for a later time"


def _against_departure(
    policy: SiloPolicy, job: FrozenJob, departure: EgressRequest, sent: EgressTotals
) -> Iterator[str]:
    method = job.spec.method.name
    asked: dict[tuple[str, str], list[str]] = {}
    for kind in departure.kinds:
        if kind not in policy.payload_kinds:
            asked.setdefault(_sender(job.spec, kind), []).append(kind)
    for (who, remedy), kinds in asked.items():
        remedy = f"{remedy}, or ask the institution to allow it"
        yield f"policy.payloadKinds does not allow {comma_separated(kinds)}, which {who}; {remedy}"
    least, examples = min_samples_per_update(policy), departure.examples
    if examples is not None and examples < least:
        remedy = "use larger batches, or localEpochs or more localSteps, or ask the institution for fewer"
        found = f"an update of method {method} may follow from {count_text(examples, 'example')}"
        yield f"policy.minSamplesPerUpdate asks for {least}, {found}; {remedy}"
    limit = policy.max_bytes_per_round
    if limit is not None and sent.in_exchange + departure.size > limit.value:
        before = f"{sent.in_exchange} bytes have left and " if sent.in_exchange else ""
        remedy = "use a smaller model or fewer classes, or ask the institution for more"
        yield f"policy.maxBytesPerRound is {limit}, {before}an update may have {departure.size} bytes; {remedy}"
    limit = policy.max_bytes_per_job
    if limit is not None and sent.size + departure.size > limit.value:
        before = f"{sent.size} bytes have left and " if sent.size else ""
        remedy = "use a smaller model or fewer rounds, or ask the institution for more"
        yield f"policy.maxBytesPerJob is {limit}, {before}an update may have {departure.size} bytes; {remedy}"
    most, answered = policy.max_answered_rounds, count_text(len(sent.rounds), "round")
    if most is not None and departure.round is not None and len(sent.rounds | {departure.round}) > most:
        remedy = "end the job, or ask the institution for more"
        yield f"policy.maxAnsweredRounds is {most}, the silo has answered in {answered} of the job; {remedy}"


def _sender(spec: FederatedJobSpec, kind: str) -> tuple[str, str]:
    """What of a job has its silos send payloads of a kind, with its verb, and what else the job could ask for."""
    if kind == KIND and spec.data.preprocessing is not None:
        return "spec.data.preprocessing needs", "leave it out"
    if metrics := metrics_that_send(kind, spec):
        named, verb = join_names(metrics, len(metrics)), "needs" if len(metrics) == 1 else "need"
        remedy = f"leave out {named}, or name a testDataset in spec.evaluation"
        return f"{named} in spec.evaluation.metrics {verb}", remedy
    return f"method {spec.method.name} sends", "use a method that sends only what the policy allows"


def choose(allowed: Collection[str], field: str) -> str:
    """The remedy where a field of the job is not among those that a policy lists."""
    remedy = "ask the institution to allow it"
    return f"use one of these in {field}, or {remedy}" if allowed else remedy
