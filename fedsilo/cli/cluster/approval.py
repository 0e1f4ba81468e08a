"""What `fedsilo approve` and `fedsilo refuse` share: a person of an institution decides about one job.

The decision stands in `Silo.spec.policy.approvals`, under the job's uid, bound to the digests of the specification and
of the proposal that were shown, with who decided and when. Only rights in the silo's own namespace are needed: to read
SiloAgents, to read and to patch Silos.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pydantic import ValidationError

from fedsilo.api.agent import Proposal
from fedsilo.api.conditions import AgentPhase, ConditionType
from fedsilo.api.messages import closest
from fedsilo.api.observed import Object, condition, reference, status_of
from fedsilo.api.proposal import decision_on, proposal_digest
from fedsilo.api.silo_policy import Approval, Verdict
from fedsilo.api.timestamps import timestamp
from fedsilo.cli.cluster.federation import AGENTS, SILOS
from fedsilo.cli.cluster.kubectl import Kubectl, add_cluster_arguments
from fedsilo.cli.cluster.offer import describe, frozen_spec, proposal_of, question
from fedsilo.cli.cluster.silos import remote_decision_text
from fedsilo.cli.cluster.text import plain_line
from fedsilo.cli.cluster.time_format import age, duration
from fedsilo.cli.columns import columns
from fedsilo.cli.confirmation import agreed
from fedsilo.errors import FedsiloError, ManifestInvalid

MANAGER = "fedsilo-approval"
"""Field manager of the entries that are added here; whoever manages the rest of the Silo keeps it."""

MAX_TRIES = 5
"""Writers who may come between reading a Silo and writing it."""

MAX_APPROVALS = 200
"""Entries that the list holds."""

MAX_NAME_CHARACTERS = 1024
"""Most characters that an entry holds of the name of who decides."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The job, and what is said about it."""
    parser.add_argument(
        "job", metavar="JOB-UID|SILOAGENT", nargs="?", help="what to decide on (default: list what waits)"
    )
    parser.add_argument("--silo", metavar="NAME", help="where several silos of the namespace are in the job")
    parser.add_argument("--note", default="", metavar="TEXT", help="why, for the consortium to read")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    add_cluster_arguments(parser)


@dataclass(frozen=True)
class ApprovalContext:
    """A SiloAgent and the Silo that decides about it."""

    agent: Object
    silo: Object

    @property
    def uid(self) -> str:
        """Identity of the job."""
        return str(self.agent["spec"]["job"]["uid"])

    @property
    def digest(self) -> str:
        """Digest of the specification that a decision is about."""
        return str(self.agent["spec"]["job"]["specDigest"])

    @property
    def proposal(self) -> Proposal | None:
        """What the decision is about beside the specification; raises as `proposal_of`."""
        return proposal_of(self.agent)

    @property
    def recorded_decision(self) -> Approval | None:
        """The decision about this very proposal, if there is one."""
        if self.proposal is None:
            return None
        approvals = [Approval.model_validate(entry) for entry in entries(self.silo)]
        return decision_on(approvals, self.proposal, has_begun="configuration" in status_of(self.agent))

    @property
    def remote(self) -> bool:
        """Whether the institution is outside of this cluster: what is written into the Silo here decides nothing."""
        return self.silo["spec"].get("remote") is not None

    @property
    def remote_text(self) -> str:
        """Who decides, of an institution outside of this cluster."""
        metadata = self.agent["metadata"]
        return remote_decision_text(reference(self.silo), metadata["name"], metadata["namespace"])

    @property
    def waits(self) -> bool:
        """Whether the job goes on only when a person has decided."""
        if self.remote:
            return status_of(self.agent).get("phase") == AgentPhase.APPROVAL_PENDING
        policy = self.silo["spec"].get("policy") or {}
        ended = any(
            condition(self.agent, name) is not None for name in (ConditionType.FINISHED, ConditionType.FAILED)
        )
        return bool(policy.get("manualApproval")) and self.recorded_decision is None and not ended


def entries(silo: Object) -> Sequence[Object]:
    """The decisions recorded in that silo."""
    found: Sequence[Object] = (silo["spec"].get("policy") or {}).get("approvals") or ()
    return found


def decide(args: argparse.Namespace, decision: Verdict) -> int:
    """List what waits, or show one job and write the decision about it.

    :raises ManifestInvalid: when there is no such agent, its institution decides elsewhere, or nobody can be asked.
    :raises PolicyRefused: when the agent is not what it says, or this login lacks a right.
    """
    kubectl = Kubectl.of(args)
    cases = _cases(kubectl)
    if args.job is None:
        waiting = [case for case in cases if case.waits and args.silo in (None, _silo_of(case.agent))]
        print(_table(waiting, datetime.now().astimezone()))
        return 0
    case = _choose(cases, args, kubectl)
    if case.remote:
        raise ManifestInvalid(f"{args.job}: {case.remote_text}")
    spec = frozen_spec(case.agent)
    entry = _entry(case, decision, args.note)
    print(describe(case.agent, spec, case.proposal))
    if _is_decided(case, entry):
        print(f"\nsilo {reference(case.silo)} has {decision.lower()} it already")
        return 0
    if not args.yes and not agreed(question(decision)):
        print("nothing was decided")
        return 0
    by = (kubectl.user() or "")[:MAX_NAME_CHARACTERS] or None
    entry = entry.model_copy(update={"by": by, "time": timestamp(datetime.now(UTC))})
    _write(kubectl, case.silo, entry)
    print(f"\nsilo {reference(case.silo)} has {decision.lower()} job {_job(case.agent)}")
    return 0


def _cases(kubectl: Kubectl) -> list[ApprovalContext]:
    silos = {silo["metadata"]["name"]: silo for silo in kubectl.get(SILOS)["items"]}
    agents = kubectl.get(AGENTS)["items"]
    return [ApprovalContext(agent, silos[_silo_of(agent)]) for agent in agents if _silo_of(agent) in silos]


def _silo_of(agent: Object) -> str:
    return str(agent["spec"]["silo"]["name"])


def _job(agent: Object) -> str:
    job = agent["spec"]["job"]
    return f"{job['namespace']}/{job['name']}"


def _table(cases: Sequence[ApprovalContext], now: datetime) -> str:
    if not cases:
        return "no job waits for a decision in this namespace"
    rows = [("siloagent", "job", "silo", "method", "age")]
    for case in cases:
        metadata, job = case.agent["metadata"], case.agent["spec"]["job"]
        waits = duration(age(metadata["creationTimestamp"], now))
        method = plain_line(job["spec"]["method"]["name"])
        rows.append((metadata["name"], _job(case.agent), _silo_of(case.agent), method, waits))
    elsewhere = [case.remote_text for case in cases if case.remote]
    return "\n".join([columns(rows), *elsewhere])


def _choose(cases: Sequence[ApprovalContext], args: argparse.Namespace, kubectl: Kubectl) -> ApprovalContext:
    named = [case for case in cases if args.job in (case.agent["metadata"]["name"], case.uid)]
    if not named:
        fault = f"{args.job}: there is no SiloAgent of that name or job uid in namespace {kubectl.context_namespace()}"
        known = [case.agent["metadata"]["name"] for case in cases]
        raise ManifestInvalid(f"{fault}; {closest(args.job, known) if known else 'name another with -n'}")
    silos = [_silo_of(case.agent) for case in named]
    found = [case for case in named if args.silo in (None, _silo_of(case.agent))]
    if not found:
        raise ManifestInvalid(f"--silo {args.silo}: is not in that job; {closest(args.silo, silos)}")
    if len(found) > 1:
        raise ManifestInvalid(
            f"{args.job}: the silos {', '.join(silos)} are in that job; choose one with --silo"
        )
    return found[0]


def _entry(case: ApprovalContext, decision: Verdict, note: str) -> Approval:
    proposal = case.proposal
    if proposal is None and decision == "Approved":
        raise ManifestInvalid(
            f"SiloAgent {reference(case.agent)}: status.proposal: is missing, so nobody knows with which images and "
            "whose aggregator the job would run; wait until the operator has written it"
        )
    digest = None if proposal is None else proposal_digest(proposal)
    try:
        return Approval(job=case.uid, spec_digest=case.digest, proposal=digest, decision=decision, note=note)
    except ValidationError:
        raise ManifestInvalid(f"--note: has {len(note):,} characters; shorten it to 1,024") from None


def _is_decided(case: ApprovalContext, entry: Approval) -> bool:
    """Whether the entry is there; a decision that is given again without a note keeps the note it had."""
    before = case.recorded_decision
    return before is not None and before.decision == entry.decision and entry.note in ("", before.note)


def _write(kubectl: Kubectl, silo: Object, entry: Approval) -> None:
    """Put the entry into the list.

    The merge patch holds the whole list, since a policy need not have one yet, and the version that it was read in, so
    that it fails instead of undoing what another wrote meanwhile. Fields that do not change stay with their managers.

    :raises FedsiloError: when others write all the time.
    """
    name, namespace = silo["metadata"]["name"], silo["metadata"]["namespace"]
    for _ in range(MAX_TRIES):
        patch = _patch(silo, entry)
        try:
            kubectl.call(
                *("patch", SILOS, name, "--namespace", namespace, "--type=merge"),
                *(f"--field-manager={MANAGER}", f"--patch={json.dumps(patch)}"),
            )
        except FedsiloError as error:
            if "(Conflict)" not in str(error):
                raise
            silo = kubectl.get(SILOS, name, namespace=namespace)
        else:
            return
    raise FedsiloError(
        f"silo {namespace}/{name} was changed by others {MAX_TRIES} times meanwhile; try again"
    )


def _patch(silo: Object, entry: Approval) -> dict[str, Any]:
    others = [other for other in entries(silo) if other["job"] != entry.job]
    if len(others) >= MAX_APPROVALS:
        raise ManifestInvalid(
            f"Silo {reference(silo)}: spec.policy.approvals: has {len(others)} entries, which is the most; "
            "remove those of jobs that are gone"
        )
    return {
        "metadata": {"resourceVersion": silo["metadata"]["resourceVersion"]},
        "spec": {"policy": {"approvals": [*others, entry.model_dump(by_alias=True, exclude_none=True)]}},
    }
