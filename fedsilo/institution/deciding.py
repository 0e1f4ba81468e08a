"""A person of the institution decides about a job: the decision is bound to the very proposal that was shown."""

from __future__ import annotations

import getpass
import socket
from datetime import UTC, datetime

from pydantic import ValidationError

from fedsilo.api.agent import Proposal
from fedsilo.api.conditions import AgentPhase
from fedsilo.api.loading import load_document
from fedsilo.api.messages import closest
from fedsilo.api.observed import Object, status_of
from fedsilo.api.proposal import proposal_digest
from fedsilo.api.silo import Silo
from fedsilo.api.silo_policy import Approval, Verdict
from fedsilo.api.timestamps import timestamp
from fedsilo.errors import ManifestInvalid
from fedsilo.institution.agent_run import job_of, read_record
from fedsilo.institution.approvals import read_approvals, write_approval
from fedsilo.institution.directory import SiloDirectory


def records(directory: SiloDirectory) -> list[Object]:
    """All parts that the hub asks for or asked for, in the order in which it did first."""
    read = (read_record(directory, uid) for uid in directory.uids())
    found = [record for record in read if record is not None]
    return sorted(found, key=lambda one: (one["metadata"]["creationTimestamp"], one["metadata"]["name"]))


def waiting(directory: SiloDirectory) -> list[Object]:
    """Parts that go on only when a person has decided."""
    return [
        record
        for record in records(directory)
        if "gone" not in record and status_of(record).get("phase") == AgentPhase.APPROVAL_PENDING
    ]


def choose(directory: SiloDirectory, job: str) -> Object:
    """The part of a job, by the SiloAgent's name or the job's uid.

    :raises ManifestInvalid: when there is none.
    """
    known = [record for record in records(directory) if "gone" not in record]
    for record in known:
        if job in (record["metadata"]["name"], job_of(record)["uid"]):
            return record
    names = [record["metadata"]["name"] for record in known]
    remedy = closest(job, names) if names else "the hub asks for none now; see fedsilo silo status"
    raise ManifestInvalid(f"{job}: is no SiloAgent or job uid of this silo; {remedy}")


def entry_of(proposal: Proposal, verdict: Verdict, note: str) -> Approval:
    """What a person says about a proposal, with who and when.

    :raises ManifestInvalid: when the note is too long.
    """
    try:
        return Approval(
            job=proposal.uid,
            spec_digest=proposal.spec_digest,
            proposal=proposal_digest(proposal),
            decision=verdict,
            note=note,
            by=f"{getpass.getuser()}@{socket.gethostname()}"[:1024],
            time=timestamp(datetime.now(UTC)),
        )
    except ValidationError:
        raise ManifestInvalid(f"--note: has {len(note):,} characters; shorten it to 1,024") from None


def is_decided(directory: SiloDirectory, entry: Approval) -> bool:
    """Whether the same was decided before; a decision that is given again without a note keeps its note."""
    before = next((one for one in read_approvals(directory) if one.job == entry.job), None)
    return (
        before is not None
        and (before.decision, before.spec_digest, before.proposal)
        == (entry.decision, entry.spec_digest, entry.proposal)
        and entry.note in ("", before.note)
    )


def decide(directory: SiloDirectory, entry: Approval) -> None:
    """Write a decision, which a silo that serves follows at once.

    :raises ManifestInvalid: when `silo.yaml` refuses the job by itself: a refusal counts until it is taken out.
    :raises ManifestFaults: when one of the files cannot be understood.
    """
    own = load_document(directory.silo_file, Silo).spec.policy.approvals
    refused = any(one.job == entry.job and one.decision == "Refused" for one in own)
    if refused and entry.decision == "Approved":
        raise ManifestInvalid(
            f"{directory.silo_file}: spec.policy.approvals: refuses job {entry.job}; remove that entry first"
        )
    write_approval(directory, entry)
