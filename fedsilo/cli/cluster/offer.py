"""What an institution is asked to agree to, as text: the job as its SiloAgent has frozen it."""

from __future__ import annotations

import textwrap

from pydantic import ValidationError

from fedsilo.api.agent import Proposal, SiloAgentSpec
from fedsilo.api.conditions import ConditionType
from fedsilo.api.digest import spec_digest
from fedsilo.api.job import FederatedJobSpec
from fedsilo.api.observed import Object, condition, reference, status_of
from fedsilo.api.proposal import propose
from fedsilo.api.silo_policy import Verdict
from fedsilo.api.text import comma_separated, count_text
from fedsilo.cli.cluster.text import plain_line
from fedsilo.errors import FedsiloError, ManifestInvalid, PolicyRefused
from fedsilo.methods import registry
from fedsilo.payload_kinds import describe_kind
from fedsilo.silo import policy
from fedsilo.silo.installed import is_installed
from fedsilo.transforms.secure_sum.steps import sums_text


def frozen_spec(agent: Object) -> FederatedJobSpec:
    """The job's specification, which must match the agent's digest.

    :raises ManifestInvalid: when this version of fedsilo cannot read it.
    :raises PolicyRefused: when the digest is of something else: nobody could know what he approves.
    """
    job = agent["spec"]["job"]
    try:
        spec = FederatedJobSpec.model_validate(job["spec"])
    except ValidationError as error:
        raise ManifestInvalid(
            f"SiloAgent {reference(agent)}: spec.job.spec: {count_text(error.error_count(), 'field')} not as this "
            "fedsilo knows SiloAgents; use the fedsilo of the release that runs the silo"
        ) from None
    if (found := spec_digest(spec)) != job["specDigest"]:
        raise PolicyRefused(
            f"SiloAgent {reference(agent)}: spec.job.specDigest: {job['specDigest']}: the specification in it has the "
            f"digest {found}; do not decide on it, ask the consortium"
        )
    return spec


def proposal_of(agent: Object) -> Proposal | None:
    """What the silo says that the decision is about; None before it has seen the agent.

    :raises ManifestInvalid: when this version of fedsilo cannot read it.
    :raises PolicyRefused: when it is not of this agent.
    """
    found = status_of(agent).get("proposal")
    if found is None:
        return None
    try:
        proposal = Proposal.model_validate(found)
        given = propose(
            SiloAgentSpec.model_validate(agent["spec"]), proposal.trainer_image, proposal.guard_image
        )
    except ValidationError as error:
        raise ManifestInvalid(
            f"SiloAgent {reference(agent)}: status.proposal: {count_text(error.error_count(), 'field')} not as this "
            "fedsilo knows SiloAgents; use the fedsilo of the release that runs the silo"
        ) from None
    if given != proposal:
        raise PolicyRefused(
            f"SiloAgent {reference(agent)}: status.proposal: is not what its spec proposes; do not decide on it, find "
            "out who changed it"
        )
    return proposal


def question(decision: Verdict) -> str:
    """What a person is asked who has read the offer."""
    return f"{'Approve' if decision == 'Approved' else 'Refuse'} this job?"


def describe(agent: Object, spec: FederatedJobSpec, proposal: Proposal | None) -> str:
    """The text of what is to be decided."""
    job, silo = agent["spec"]["job"], agent["spec"]["silo"]
    shape = " x ".join(map(str, spec.data.input_shape))
    rows = {
        "job": f"{job['namespace']}/{job['name']}, uid {job['uid']}",
        "silo": f"{agent['metadata']['namespace']}/{silo['name']}",
        "method": _method(spec),
        **(
            {"transforms": comma_separated([each.name for each in spec.transforms])}
            if spec.transforms
            else {}
        ),
        "model": f"{spec.model.name} on dataset {spec.data.dataset} ({shape}, {spec.task_summary})",
        "rounds": f"{spec.training.rounds}, with {_local_training(spec)} in each"
        if spec.training.rounds
        else "0: nothing is trained",
        "digest": job["specDigest"],
        **({} if proposal is None else _proposal_facts(proposal)),
        **_members(agent, proposal),
        **({"sums": sums_text(spec)} if spec.aggregation.secure else {}),
    }
    width = max(map(len, rows)) + 2
    lines = [f"{name:<{width}}{plain_line(value)}" for name, value in rows.items()]
    lines += ["what leaves the silo:", *_payloads(spec)]
    if text := _objections(agent):
        lines += ["what the silo says of it:", textwrap.indent(text, "  ")]
    return "\n".join(lines)


def _local_training(spec: FederatedJobSpec) -> str:
    """How much a silo trains in a round."""
    training = spec.training
    if training.local_steps is not None:
        examples = count_text(training.examples_per_step, "example")
        return f"{count_text(training.local_steps, 'step')} of {examples}"
    epochs = training.local_epochs
    return f"{epochs} pass{'' if epochs == 1 else 'es'} over the data"


def _proposal_facts(proposal: Proposal) -> dict[str, str]:
    """Whom the silo would trust, and what would run in it."""
    address = f" at {proposal.address}" if proposal.address else ""
    return {
        "aggregator": f"{proposal.url}{address}",
        "authority": proposal.authority or "those of the system",
        "task key": proposal.task_key,
        "trainer": _image(proposal.trainer_image),
        "guard": _image(proposal.guard_image),
    }


def _members(agent: Object, proposal: Proposal | None) -> dict[str, str]:
    """Whose keys the silo would trust beside the aggregator's: people compare the digest among institutions."""
    if proposal is None or proposal.members is None:
        return {}
    count = count_text(len(agent["spec"]["trust"]["members"]), "silo")
    return {"members": f"{count}, digest of their keys {proposal.members}"}


def _image(image: str) -> str:
    if is_installed(image):
        return f"{image} (what is installed here runs, in place of images)"
    return image if "@" in image else f"{image} (a tag: what it names may change later)"


def _method(spec: FederatedJobSpec) -> str:
    try:
        return f"{spec.method.name} ({registry.get(spec.method.name).title})"
    except FedsiloError:
        return spec.method.name


def _payloads(spec: FederatedJobSpec) -> list[str]:
    """One line for each kind, or why they are not known."""
    try:
        departure = policy.declared_egress(spec)
    except FedsiloError as error:
        return [f"  cannot be told: {plain_line(error)}"]
    if departure is None:
        return [
            f"  not known here: {policy.unknown_component(spec)} is not installed; the guard holds to "
            "policy.payloadKinds"
        ]
    lines = [f"  {kind}: {describe_kind(kind).meaning}" for kind in departure.kinds]
    lines.append("  metrics: single numbers, such as accuracy and loss on the silo's data")
    if registry.bind(spec).models.personal is not None:
        lines.append("  of the silo's own model: its accuracy at most, as policy.personalAccuracy says")
    return lines


def _objections(agent: Object) -> str:
    found = condition(agent, ConditionType.ADMITTED)
    return (
        plain_line(found["message"]) if found and found["status"] == "False" and found.get("message") else ""
    )
