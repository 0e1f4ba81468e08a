"""The `SiloAgent` resource is the seam between consortium and institution.

The job controller writes one per job and silo, and never changes it. The guard derives from it what it may
let pass, so it carries the frozen job and everything needed to recognise the aggregator.
"""

from __future__ import annotations

import hashlib
from typing import Annotated, Literal

from pydantic import Field, StringConstraints
from typing_extensions import override

from fedsilo.api.budgets import StatedLedger
from fedsilo.api.common import (
    API_VERSION,
    MAX_SILOS,
    Condition,
    Fields,
    Flag,
    FreeForm,
    ImageName,
    Integer,
    IpAddress,
    KeyId,
    Label,
    LongText,
    Metadata,
    ObjectRef,
    PublicKey,
    ResourceName,
    Sha256,
    Signature,
    Text,
    Url,
)
from fedsilo.api.job import FederatedJobSpec
from fedsilo.api.receipts import StatedReceipts

Certificate = Annotated[
    str, StringConstraints(pattern=r"^-----BEGIN CERTIFICATE-----\n[\s\S]+-----END CERTIFICATE-----\s*$")
]


def agent_name(job: str, uid: str, namespace: str, silo: str) -> str:
    """Name of the SiloAgent of a job in a silo, 40 characters at most.

    :param job: name of the job; `uid`: its identity.
    :param namespace: of the silo.
    """
    digest = hashlib.sha256(f"{uid} {namespace}/{silo}".encode()).hexdigest()[:8]
    return f"{job[:15].rstrip('-')}-{silo[:14].rstrip('-')}-{digest}"


class FrozenJob(Fields):
    """The job as it was when the agent was created."""

    namespace: Label = Field(description="Namespace of the job.")
    name: ResourceName = Field(description="Name of the job.")
    uid: Text = Field(min_length=1, description="Identity of the job; every signed message is bound to it.")
    spec_digest: Sha256 = Field(description="SHA-256 of the canonical spec, see fedsilo.api.digest.")
    spec: FederatedJobSpec = Field(description="The job's spec.")


class Member(Fields):
    """One silo of a job in which silos trust each other's keys."""

    silo: Text = Field(min_length=1, description="The silo, namespace/name.")
    public_key: PublicKey = Field(description="Key with which it signs for this job.")


class TrustBundle(Fields):
    """How the silo recognises the aggregator, and which key the aggregator expects from the silo."""

    url: Url = Field(description="Address of the aggregator, or of the gateway that forwards to it.")
    address: IpAddress | None = Field(
        default=None, description="Address that the URL's host has inside the cluster; looked up when null."
    )
    ca_certificate: Certificate | None = Field(
        default=None,
        max_length=65536,
        description="Authority that signed the certificate of that address, in PEM; the system's when null, which only "
        "a gateway may have.",
    )
    task_key: PublicKey = Field(description="Key with which the aggregator signs tasks.")
    public_key: PublicKey = Field(description="Key of this silo as the aggregator knows it.")
    members: tuple[Member, ...] | None = Field(
        default=None,
        max_length=MAX_SILOS,
        description="All silos of a job with secure aggregation, in the order of its references; null for others.",
    )


class GatewayRoute(Fields):
    """How the hub's gateway reaches the aggregator for a silo outside of the cluster."""

    url: Url = Field(description="Address of the aggregator.")
    ca_certificate: Certificate = Field(
        max_length=65536, description="Authority that signed the aggregator's certificate, in PEM."
    )


class SiloAgentSpec(Fields):
    """One silo's part in one job; immutable but for `suspend`."""

    job: FrozenJob = Field(description="The job as it was when the agent was made.")
    silo: ObjectRef = Field(description="The silo.")
    trust: TrustBundle = Field(description="How both sides authenticate each other.")
    route: GatewayRoute | None = Field(
        default=None,
        description="Of a remote silo: where the gateway forwards its requests; the silo is not told.",
    )
    suspend: Flag = Field(
        default=False,
        description="No pods: until all silos have admitted the job, and while it is suspended.",
    )


class Proposal(Fields):
    """Everything that the institution decides on: if any of it differs later, it decides again."""

    namespace: Label = Field(description="Namespace of the job.")
    name: ResourceName = Field(description="Name of the job.")
    uid: Text = Field(min_length=1, description="Identity of the job.")
    spec_digest: Sha256 = Field(description="SHA-256 of the canonical spec.")
    url: Url = Field(description="Address of the aggregator, or of the gateway that forwards to it.")
    address: IpAddress | None = Field(
        default=None, description="Address that the URL's host has inside the cluster."
    )
    authority: Sha256 | None = Field(
        default=None, description="SHA-256 of `caCertificate`, as it is written; null for the system's."
    )
    task_key: PublicKey = Field(description="Key with which the aggregator signs tasks.")
    members: Sha256 | None = Field(
        default=None,
        description="SHA-256 of the canonical JSON of `trust.members`; null where there are none.",
    )
    trainer_image: ImageName = Field(description="Image of the trainer, whoever named it.")
    guard_image: ImageName = Field(description="Image of the guard, whoever named it.")


MAX_OBJECTIONS = 32
"""Objections that a decision states; the last one then says how many there are besides."""


class StatedObjection(Fields):
    """One reason for which a silo does not admit a job."""

    reason: Text = Field(description="Why, in one CamelCase word.")
    message: Text = Field(description="Why, with the remedy; cut to 1,024 characters.")


class Decision(Fields):
    """What a silo decided about a proposal, signed with the silo's key over all other fields."""

    silo: Text = Field(min_length=1, description="The silo, namespace/name.")
    proposal: Sha256 = Field(description="Digest of the proposal that was decided on.")
    decision: Literal["Admitted", "Refused"] = Field(
        description="Whether the silo takes part; Refused also while a person has yet to approve."
    )
    objections: tuple[StatedObjection, ...] = Field(
        default=(), max_length=MAX_OBJECTIONS, description="Everything against it, the gravest first."
    )
    decided_by: Text | None = Field(
        default=None, description="Person of the institution who approved or refused, where that is known."
    )
    decided_at: Text | None = Field(default=None, description="RFC 3339 time at which that person did.")
    time: Text = Field(description="RFC 3339 time of the decision.")
    key_id: KeyId = Field(description="Id of the key that signed.")
    signature: Signature = Field(
        description="Ed25519 signature in the domain fedsilo/decision/v1 (docs/wire.md)."
    )


class SiloAgentStatus(Fields):
    """What the silo controller found and does."""

    observed_generation: Integer | None = Field(
        default=None, description="Generation that the controller acted on."
    )
    phase: Text | None = Field(default=None, description="Summary of the conditions, for people.")
    message: LongText | None = Field(default=None, description="What a person should know.")
    conditions: tuple[Condition, ...] = Field(default=(), max_length=32, description="Standard conditions.")
    proposal: Proposal | None = Field(
        default=None, description="What the institution decides on; an approval names its digest."
    )
    decision: Decision | None = Field(
        default=None, description="What the silo decided about the proposal, signed with its key."
    )
    configuration: Sha256 | None = Field(
        default=None, description="SHA-256 of the configuration with which guard and trainer began."
    )
    receipts: StatedReceipts | None = Field(
        default=None, description="What has left the silo, as its guard said last."
    )
    ledger: StatedLedger | None = Field(
        default=None,
        description="What is spent of the dataset's privacy budget, as the guard said last; the hub is not told.",
    )


class SiloAgent(Fields):
    """One silo's part in one job."""

    api_version: Literal["fedsilo.io/v1alpha1"] = Field(default=API_VERSION, description="Group and version.")
    kind: Literal["SiloAgent"] = Field(default="SiloAgent", description="Kind of the object.")
    metadata: Metadata = Field(description="Names and labels.")
    spec: SiloAgentSpec = Field(description="One silo's part in one job.")
    status: FreeForm = Field(
        default_factory=dict, description="Written by the silo controller; not read here."
    )

    @override
    def __str__(self) -> str:
        return f"{self.metadata.namespace}/{self.metadata.name}"
