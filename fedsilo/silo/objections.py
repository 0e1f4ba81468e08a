"""Everything that one silo objects to in one job, found before any pod exists and any GPU is taken.

What a policy says about method, payloads, rounds and namespaces is `fedsilo.silo.policy`, which the guard applies
again with the exact contract. Here is the rest: trust, the dataset, the trainer's image, the decision of a person.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

from fedsilo.api.agent import Proposal, SiloAgent, agent_name
from fedsilo.api.conditions import ObjectionReason
from fedsilo.api.digest import spec_digest
from fedsilo.api.faults import ABSENT_VALUE, value_text
from fedsilo.api.proposal import decision_on, proposal_digest
from fedsilo.api.resources import is_device
from fedsilo.api.silo import Silo
from fedsilo.api.text import comma_separated, count_text
from fedsilo.data.catalogue import check_dataset, listed_features, names_persons
from fedsilo.errors import FedsiloError, ManifestInvalid
from fedsilo.silo import policy, reply_limits
from fedsilo.silo.installed import is_installed
from fedsilo.silo.members import member_keys
from fedsilo.silo.reach import leads_elsewhere


@dataclass(frozen=True)
class Objection:
    """What a silo has against a job.

    :param message: the silo, the field, the value and the remedy, as a sentence. It leaves the institution: of the
        Silo it quotes nothing but what the offer says as well.
    :param faults: what the message leaves out, for the institution's own log.
    """

    reason: ObjectionReason
    message: str
    faults: tuple[str, ...] = ()


def objections(
    agent: SiloAgent, silo: Silo, proposal: Proposal, now: datetime, has_begun: bool
) -> list[Objection]:
    """Every objection of the silo to its part in the job; empty when it admits the job.

    The gravest come first: broken trust, then what the policy forbids, then what a person has to decide.

    :param proposal: what the silo decides on, with the images that would run.
    :param now: the time, for the policy's dates.
    :param has_begun: whether guard and trainer of this very agent were made before.
    """
    found = (
        *_trust(agent, silo),
        *_place(agent, silo, has_begun),
        *_policy(agent, silo, now),
        *_image(agent, silo, proposal.trainer_image),
        *_metadata(agent, silo, proposal.trainer_image),
        *_device(agent, silo, proposal.trainer_image),
        *_dataset(agent, silo),
    )
    decided = _decision(agent, silo, proposal, has_begun)
    return [
        *_worded_objections(silo, found),
        *_dataset_faults(agent, silo),
        *_worded_objections(silo, decided),
    ]


def _worded_objections(silo: Silo, found: Iterable[tuple[ObjectionReason, str]]) -> Iterator[Objection]:
    for reason, text in found:
        yield Objection(reason, f"Silo {silo.metadata.name}: {text}.")


def admission_note(agent: SiloAgent, silo: Silo) -> str:
    """The message of an admission: what holds for the job in this silo."""
    spec, name = agent.spec.job.spec, silo.metadata.name
    least = reply_limits.min_samples_per_class(spec, silo)
    whose = "the silo" if least > spec.privacy.min_samples_per_class else "the job"
    few = f"a class with fewer than {count_text(least, 'sample')}"
    text = f"Silo {name} admits the job; {few} is left out, as {whose} asks."
    limit = silo.spec.policy.max_bytes_per_round
    if limit is not None:
        text += (
            f" The guard refuses an update of more than {limit}: its size is known when the model is built."
        )
    rules = silo.spec.policy
    if rules.max_bytes_per_job is not None:
        text += f" It refuses what would make more than {rules.max_bytes_per_job} of all updates together."
    if rules.max_answered_rounds is not None and rules.max_answered_rounds < spec.training.rounds:
        text += f" It answers in {count_text(rules.max_answered_rounds, 'round')} at most."
    if rules.not_after is not None:
        text += f" Nothing leaves after {rules.not_after}."
    if (what := policy.unknown_component(spec)) is not None:
        text += f" {what[0].upper()}{what[1:]} is not known here: the guard decides what it may send."
    return text


def _trust(agent: SiloAgent, silo: Silo) -> Iterator[tuple[ObjectionReason, str]]:
    frozen, trust = agent.spec.job, agent.spec.trust
    here, there = agent.metadata.namespace, silo.metadata.namespace
    if here != there or agent.spec.silo.namespace != there or agent.spec.silo.name != silo.metadata.name:
        remedy = "delete this SiloAgent, the operator makes the right one"
        yield (
            ObjectionReason.TRUST_BROKEN,
            f"the SiloAgent lies in namespace {here} and is for {agent.spec.silo}; {remedy}",
        )
    expected = agent_name(frozen.name, frozen.uid, there, silo.metadata.name)
    if agent.metadata.name != expected:
        remedy = "delete it, the operator makes the right one"
        yield (
            ObjectionReason.TRUST_BROKEN,
            f"the SiloAgent is called {agent.metadata.name}, not {expected}; {remedy}",
        )
    digest = spec_digest(frozen.spec)
    if digest != frozen.spec_digest:
        problem = (
            f"spec.job.specDigest is {frozen.spec_digest[:12]}, the specification beside it has {digest[:12]}"
        )
        yield ObjectionReason.TRUST_BROKEN, f"{problem}; delete the job and create it again"
    published = silo.status.public_key
    if trust.public_key != published:
        problem = f"status.publicKey is {published}, the job was made for {trust.public_key}"
        remedy = "restore the key, or delete the job and create it again"
        yield ObjectionReason.TRUST_BROKEN, f"{problem}; {remedy}"
    try:
        member_keys(agent.spec)
    except FedsiloError as error:
        yield ObjectionReason.TRUST_BROKEN, str(error)


def _place(agent: SiloAgent, silo: Silo, has_begun: bool) -> Iterator[tuple[ObjectionReason, str]]:
    """A job that has begun goes on with the place that it began with, also when the hub has another since."""
    if silo.status.hub is None or has_begun:
        return
    trust = agent.spec.trust.model_dump(mode="json", by_alias=True, exclude_none=True)
    if (wrong := leads_elsewhere(trust, str(silo.status.hub.url))) is not None:
        yield (
            ObjectionReason.TRUST_BROKEN,
            f"the guard would not connect to the hub. {wrong.removesuffix('.')}",
        )


def _policy(agent: SiloAgent, silo: Silo, now: datetime) -> Iterator[tuple[ObjectionReason, str]]:
    job = agent.spec.job
    try:
        departure = policy.declared_egress(job.spec)
    except FedsiloError as error:
        remedy = "correct spec.method.config, or the method as it is installed here"
        text = " ".join(str(error).split())
        reason = (
            ObjectionReason.MANIFEST_INVALID
            if isinstance(error, ManifestInvalid)
            else ObjectionReason.METHOD_ERROR
        )
        yield reason, f"cannot tell what method {job.spec.method.name} sends ({text}); {remedy}"
        departure = None
    for text in policy.objections(silo, job, departure, now):
        yield ObjectionReason.POLICY_REFUSED, text


def _image(agent: SiloAgent, silo: Silo, trainer_image: str) -> Iterator[tuple[ObjectionReason, str]]:
    """An image's digest is its content (OCI image specification), so the registry it comes from does not matter.

    Where the institution runs what it has installed, the policy is about the image that the job names, if it does.
    """
    allowed = silo.spec.policy.trainer_images
    if is_installed(trainer_image):
        trainer_image = agent.spec.job.spec.agents.image or ""
    if allowed is None or not trainer_image:
        return
    digest = trainer_image.partition("@")[2]
    if digest and digest in {image.partition("@")[2] for image in allowed}:
        return
    without = "" if digest else ", which is named without a digest"
    remedy = policy.choose(allowed, "spec.agents.image")
    yield (
        ObjectionReason.POLICY_REFUSED,
        f"policy.trainerImages allows {comma_separated(allowed)}, not {trainer_image}{without}; {remedy}",
    )


def _metadata(agent: SiloAgent, silo: Silo, trainer_image: str) -> Iterator[tuple[ObjectionReason, str]]:
    """Keys that the institution has not permitted: its network policies, queues and webhooks may go by them.

    What the institution has installed runs in no pod.
    """
    template = agent.spec.job.spec.agents.pod_template
    if template is None or template.metadata is None or is_installed(trainer_image):
        return
    allowed = silo.spec.policy.metadata_keys or ()
    if refused := [key for key in template.metadata.keys if key not in allowed]:
        permitted = comma_separated(allowed) if allowed else "none"
        remedy = policy.choose(allowed, "spec.agents.podTemplate.metadata")
        problem = f"policy.metadataKeys allows {permitted}, not {comma_separated(refused)}"
        yield ObjectionReason.POLICY_REFUSED, f"{problem}; {remedy}"


def _device(agent: SiloAgent, silo: Silo, trainer_image: str) -> Iterator[tuple[ObjectionReason, str]]:
    """A GPU that no trainer of the silo gets. What is installed on a machine sees that machine's; what a RuntimeClass
    gives to containers is not known here.
    """
    template, device = silo.spec.agent, agent.spec.job.spec.training.device
    given = template.runtime_class_name is not None or any(
        map(is_device, template.resources.get("limits", ()))
    )
    if device == "cuda" and not given and not is_installed(trainer_image):
        problem = "spec.training.device is cuda, and the silo gives its trainers no GPU"
        remedy = "use auto or cpu, or ask the institution for one, in spec.agent.resources.limits of its Silo"
        yield ObjectionReason.MANIFEST_INVALID, f"{problem}; {remedy}"


def _dataset(agent: SiloAgent, silo: Silo) -> Iterator[tuple[ObjectionReason, str]]:
    name = agent.spec.job.spec.data.dataset
    dataset = silo.dataset(name)
    if dataset is None:
        offered = comma_separated([dataset.name for dataset in silo.spec.datasets])
        remedy = "use one of these in spec.data.dataset, or ask the institution to offer it"
        yield ObjectionReason.DATASET_MISSING, f"spec.datasets offers {offered}, not {name}; {remedy}"
        return
    data = agent.spec.job.spec.data
    if dataset.input_shape is not None and data.input_shape != dataset.input_shape:
        shapes = f"{list(dataset.input_shape)}, the job has {list(data.input_shape)}"
        remedy = "use the dataset's in spec.data.inputShape"
        yield ObjectionReason.DATA_INVALID, f"inputShape of dataset {name} is {shapes}; {remedy}"
    elif (count := listed_features(dataset)) is not None and data.input_shape != (count,):
        problem = f"the columns of dataset {name} are not the features of the job, inputShape {list(data.input_shape)}"
        remedy = "ask the institution how many they are, and use that number in spec.data.inputShape"
        yield ObjectionReason.DATA_INVALID, f"{problem}; {remedy}"
    if dataset.classes is not None and data.classes is not None and data.class_count < dataset.classes:
        problem = f"dataset {name} has {dataset.classes} classes, the job {data.class_count}"
        yield ObjectionReason.DATA_INVALID, f"{problem}; use that number or more in spec.data.classes"
    private = agent.spec.job.spec.privacy.differential_privacy
    if private is not None and private.unit == "person" and names_persons(dataset) is False:
        problem = f"dataset {name} does not say whose each example is, and the job protects persons"
        remedy = "set config.person in the institution, or unit: example in spec.privacy.differentialPrivacy"
        yield ObjectionReason.DATA_INVALID, f"{problem}; {remedy}"


def _dataset_faults(agent: SiloAgent, silo: Silo) -> Iterator[Objection]:
    """What no loader could run. Values, and what stands in their place by mistake, are the institution's alone."""
    name = agent.spec.job.spec.data.dataset
    dataset = silo.dataset(name)
    faults: dict[str, list[str]] = {}
    for path, value, problem, remedy in [] if dataset is None else check_dataset(dataset):
        given = "" if value is ABSENT_VALUE else f" ({value_text(value)})"
        part = re.split(r"[.\[]", path, maxsplit=1)[0]
        faults.setdefault(part, []).append(f"{path}{given} of dataset {name} {problem}; {remedy}")
    for part, found in faults.items():
        text = (
            f"Silo {silo.metadata.name}: {part} of dataset {name} is not as its loader takes it; in the institution, "
            "fedsilo validate says what to correct in the Silo's spec.datasets."
        )
        yield Objection(ObjectionReason.DATA_INVALID, text, tuple(found))


def _decision(
    agent: SiloAgent, silo: Silo, proposal: Proposal, has_begun: bool
) -> Iterator[tuple[ObjectionReason, str]]:
    """A refusal counts even where no approval is required: a person refused this very specification."""
    rules = silo.spec.policy
    decision = decision_on(rules.approvals, proposal, has_begun)
    if decision is not None and decision.decision == "Refused":
        note = decision.note.rstrip(". ") or "no note"
        remedy = "settle it with the institution, which can change its entry in policy.approvals"
        yield ObjectionReason.APPROVAL_REFUSED, f"the institution refused the job ({note}); {remedy}"
    elif decision is None and rules.manual_approval:
        yield ObjectionReason.APPROVAL_PENDING, _approval_problem(agent, silo, proposal)


def _approval_problem(agent: SiloAgent, silo: Silo, proposal: Proposal) -> str:
    job = f"{proposal.namespace}/{proposal.name}"
    problem = f"policy.manualApproval asks a person of the institution to approve job {job}"
    earlier = next((entry for entry in silo.spec.policy.approvals if entry.job == proposal.uid), None)
    if earlier is not None and earlier.spec_digest != proposal.spec_digest:
        other, this = earlier.spec_digest[:12], proposal.spec_digest[:12]
        problem += f", and what was decided is specification {other}, not {this}"
    elif earlier is not None and earlier.proposal is None:
        problem += ", and what was approved names no aggregator and no images"
    elif earlier is not None:
        problem += (
            ", and what was approved is another proposal: the aggregator's address, authority or key, or an image, "
            "differs"
        )
    if is_installed(proposal.guard_image):
        command = f"fedsilo silo approve --dir DIR {agent.metadata.name}"
    else:
        command = f"kubectl fedsilo approve {agent.metadata.name} -n {agent.metadata.namespace}"
    entry = (
        f"job {proposal.uid} with specDigest {proposal.spec_digest} and proposal {proposal_digest(proposal)}"
    )
    return f"{problem}; use `{command}`, or add {entry} to policy.approvals"
