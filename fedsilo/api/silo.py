"""The `Silo` resource: what an institution offers, and its policy.

It lives in the institution's own namespace, and the guard reads it from the institution's own cluster only.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import ConfigDict, Field, StringConstraints, model_validator

from fedsilo.api.common import (
    API_VERSION,
    IMAGE_BY_DIGEST,
    MAX_SILOS,
    CertificatePem,
    Condition,
    DatasetName,
    Dimension,
    Fields,
    Flag,
    FreeForm,
    Image,
    Integer,
    KeyId,
    Label,
    Labels,
    Metadata,
    PublicKey,
    Quantity,
    Reference,
    Sha256,
    Signature,
    StorageSpec,
    Text,
    Time,
    Url,
    check_one_of,
    wrong,
)

PayloadKind = Literal["model", "class_counts", "class_means", "class_covariances", "averaged_gradients"]
PersonalAccuracy = Literal["Withheld", "Mean", "PerSilo"]
Scheme = Literal["labels", "dirichlet", "creff", "map", "fedbr", "iid"]
ResourceKey = Annotated[str, StringConstraints(max_length=317)]
Amounts = Annotated[dict[ResourceKey, Quantity], Field(max_length=32)]
Resources = Annotated[dict[Literal["requests", "limits"], Amounts], Field(max_length=2)]
"""A container's resources as in core/v1."""

# A covariance matrix shows more of a small class than any other kind: an institution permits it by name.
DEFAULT_KINDS: tuple[PayloadKind, ...] = ("model", "class_counts", "class_means", "averaged_gradients")

ImageByDigest = Annotated[str, StringConstraints(pattern=IMAGE_BY_DIGEST, max_length=512)]


class PartitionSpec(Fields):
    """Benchmark partition: this silo holds one part of a dataset that is split by a published rule."""

    scheme: Scheme = Field(description="Rule of the split; docs/data.md gives the source of each.")
    silos: Integer = Field(ge=1, le=MAX_SILOS, description="Number of parts.")
    index: Integer = Field(ge=0, description="Part of this silo, from 0.")
    seed: Integer = Field(
        default=0, ge=0, le=2**32 - 1, description="Seed of the split; the same in every silo."
    )
    config: FreeForm = Field(default_factory=dict, description="Settings of the rule.")

    @model_validator(mode="after")
    def _index_within(self) -> Self:
        if self.index >= self.silos:
            raise wrong(
                f"is not below the {self.silos} parts of silos",
                f"use 0 to {self.silos - 1}",
                "index",
                value=self.index,
            )
        return self


class VolumeSpec(Fields):
    """Where the data are; mounted in the trainer only, and read-only."""

    persistent_volume_claim: Label | None = Field(default=None, description="Claim in the silo's namespace.")
    host_path: Text | None = Field(default=None, description="Directory of the node.")

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        check_one_of(
            persistentVolumeClaim=self.persistent_volume_claim is not None,
            hostPath=self.host_path is not None,
        )
        return self


class DatasetSpec(Fields):
    """One dataset: a name that jobs ask for, and how to read it."""

    name: DatasetName = Field(description="Name under which jobs ask for the dataset.")
    loader: Reference = Field(
        min_length=1,
        description="Reader: npz, imagefolder, sklearn:digits, torchvision:Name, python:module:function.",
    )
    config: FreeForm = Field(default_factory=dict, description="Settings of the loader.")
    partition: PartitionSpec | None = Field(
        default=None, description="Benchmark partition; the whole when absent."
    )
    volume: VolumeSpec | None = Field(default=None, description="Where the data are on a cluster.")
    classes: Integer | None = Field(
        default=None, ge=2, le=100_000, description="Classes, for the offer; a job with fewer is refused."
    )
    input_shape: tuple[Dimension, ...] | None = Field(
        default=None,
        min_length=1,
        max_length=3,
        description="Shape of one example, for the offer; a job with another is refused.",
    )


def check_unique_names(datasets: tuple[DatasetSpec, ...]) -> None:
    """Refuse two datasets of one name."""
    seen: set[str] = set()
    for position, dataset in enumerate(datasets):
        if dataset.name in seen:
            remedy = "rename one or remove it"
            raise wrong(
                "is the name of two datasets", remedy, "datasets", position, "name", value=dataset.name
            )
        seen.add(dataset.name)


class Toleration(Fields):
    """A taint that the agent's pods tolerate, as in core/v1."""

    key: Text | None = Field(default=None, description="Key of the taint; all when absent.")
    operator: Literal["Equal", "Exists"] = Field(default="Equal", description="How the value is compared.")
    value: Text | None = Field(default=None, description="Value of the taint, for Equal.")
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = Field(
        default=None, description="Effect of the taint; all when absent."
    )
    toleration_seconds: Integer | None = Field(default=None, description="How long, for NoExecute.")


class SiloAgentTemplate(Fields):
    """How the silo's agent runs on its cluster."""

    resources: Resources = Field(default_factory=dict, description="Resources of the trainer, GPUs included.")
    node_selector: Labels = Field(default_factory=dict, description="Labels of the nodes to run on.")
    tolerations: tuple[Toleration, ...] = Field(default=(), max_length=64, description="Taints to tolerate.")
    runtime_class_name: Label | None = Field(
        default=None, description="RuntimeClass of the pods, such as a sandbox."
    )
    storage: StorageSpec = Field(
        default=StorageSpec(), description="The volume of tasks, private state and the audit log."
    )
    guard_image: Image | None = Field(
        default=None, description="Image of the guard; the operator's own when absent, never one of the job."
    )


class Approval(Fields):
    """What a person of the institution decided about one job."""

    job: Text = Field(min_length=1, description="UID of the job; the key of the list.")
    spec_digest: Sha256 = Field(description="Digest of the specification that was decided on.")
    proposal: Sha256 | None = Field(
        default=None,
        description="Digest of the SiloAgent's `status.proposal`; an approval without it lets only an agent go on that "
        "has begun before.",
    )
    decision: Literal["Approved", "Refused"] = Field(description="The decision.")
    note: Text = Field(default="", description="Why, for the consortium to read.")
    by: Text | None = Field(
        default=None,
        description="Who decided, for the silo's signed decision to name; `kubectl auth whoami`.",
    )
    time: Text | None = Field(default=None, description="RFC 3339 time at which that was.")


class SiloPolicy(Fields):
    """What the institution permits; the guard refuses everything else."""

    methods: tuple[Reference, ...] | None = Field(
        default=None, max_length=100, description="Methods; any when null."
    )
    payload_kinds: tuple[PayloadKind, ...] = Field(
        default=DEFAULT_KINDS, max_length=16, description="What may leave the silo."
    )
    min_samples_per_class: Integer = Field(
        default=5, ge=1, description="A class with fewer samples is left out of every per-class quantity."
    )
    personal_accuracy: PersonalAccuracy = Field(
        default="Mean",
        description="How the accuracy of the silo's own model is reported, if the method trains one: Withheld, it "
        "stays in the silo; Mean, the aggregator reports mean and spread over the silos; PerSilo, with the silo's "
        "name.",
    )
    max_bytes_per_round: Quantity | None = Field(
        default=None, description="Maximum size of an update; unlimited when null."
    )
    max_bytes_per_job: Quantity | None = Field(
        default=None,
        description="Maximum size of all updates for a job together, each counted once; unlimited when null.",
    )
    job_namespaces: tuple[Label, ...] | None = Field(
        default=None, max_length=100, description="Namespaces whose jobs are admitted; any when null."
    )
    trainer_images: tuple[ImageByDigest, ...] | None = Field(
        default=None, max_length=100, description="Trainer images admitted, by digest; any when null."
    )
    max_rounds: Integer | None = Field(
        default=None, ge=1, description="Maximum number of rounds of a job; unlimited when null."
    )
    max_answered_rounds: Integer | None = Field(
        default=None,
        ge=1,
        description="Maximum number of rounds of a job in which the silo answers; unlimited when null.",
    )
    min_silos: Integer | None = Field(
        default=None,
        ge=1,
        le=MAX_SILOS,
        description="Minimum number of silos whose answers every round of a job needs; any when null.",
    )
    not_before: Time | None = Field(
        default=None, description="Time before which no job is admitted and nothing leaves; any when null."
    )
    not_after: Time | None = Field(
        default=None, description="Time after which no job is admitted and nothing leaves; any when null."
    )
    manual_approval: Flag = Field(default=False, description="A person at the institution approves each job.")
    approvals: tuple[Approval, ...] = Field(
        default=(), max_length=200, description="What was decided; `kubectl fedsilo approve` adds to it."
    )

    @model_validator(mode="after")
    def _dates_in_order(self) -> Self:
        before, after = self.not_before, self.not_after
        if before is not None and after is not None and after.moment <= before.moment:
            raise wrong("is not after notBefore", "write a later time", "notAfter", value=str(after))
        return self


class Invitation(Fields):
    """What lets an institution enrol, once."""

    token_digest: Sha256 = Field(description="SHA-256 of the token that the institution was given.")
    expires: Time = Field(description="When the token ends, in UTC.")


class RemoteSpec(Fields):
    """An institution outside of the cluster, which reaches the hub's gateway and is reached by nobody."""

    invitation: Invitation | None = Field(
        default=None, description="Until when a token may be used; `kubectl fedsilo invite` writes it."
    )
    public_key: PublicKey | None = Field(
        default=None,
        description="The institution's key, once its fingerprint was compared; `kubectl fedsilo accept` writes it.",
    )
    revoked: Flag = Field(
        default=False, description="Every further request is refused; `kubectl fedsilo revoke` writes it."
    )


class SiloSpec(Fields):
    """What the institution offers, and to whom."""

    datasets: tuple[DatasetSpec, ...] = Field(
        default=(), max_length=100, description="Datasets of the silo, at least one; names are unique."
    )
    remote: RemoteSpec | None = Field(
        default=None,
        description="The institution is outside of this cluster: datasets, policy and agent template are in its own "
        "Silo, and those here have no effect.",
    )
    agent: SiloAgentTemplate = Field(
        default=SiloAgentTemplate(), description="How the agent runs on a cluster."
    )
    policy: SiloPolicy = Field(default=SiloPolicy(), description="What the institution permits.")

    @model_validator(mode="after")
    def _datasets_of_its_own(self) -> Self:
        check_unique_names(self.datasets)
        if self.remote is None and not self.datasets:
            raise wrong("is empty", "list the datasets of the silo", "datasets", value=[])
        if self.remote is not None and self.datasets:
            raise wrong("is the institution's to list", "remove it, or remove remote", "datasets")
        return self


class HubAddress(Fields):
    """Where a remote silo finds the hub's gateway, and how it recognises it."""

    url: Url = Field(description="Address of the gateway.")
    ca_certificate: CertificatePem | None = Field(
        default=None, description="Authority of its certificate in PEM; the system's when null."
    )
    key: PublicKey = Field(description="Key with which the gateway signs what it says to silos.")


class Enrolment(Fields):
    """The key that an institution has made and registered with its token."""

    public_key: PublicKey = Field(description="Key of the institution, accepted or not.")
    fingerprint: Text = Field(description="Its short form, which two people compare by telephone.")
    token_digest: Sha256 = Field(description="Of the invitation that was used.")
    time: Time = Field(description="When it was used.")
    version: Text = Field(description="Version of fedsilo in the institution.")


class OfferedDataset(Fields):
    """One dataset as the consortium sees it."""

    model_config = ConfigDict(extra="ignore")

    name: DatasetName = Field(description="Name under which jobs ask for the dataset.")
    classes: Integer | None = Field(default=None, description="Number of classes, where the silo states it.")
    input_shape: tuple[Dimension, ...] | None = Field(
        default=None, max_length=3, description="Shape of one example, where the silo states it."
    )


class Offer(Fields):
    """What a silo offers, signed with its key over all other fields; what a later version adds is ignored."""

    model_config = ConfigDict(extra="ignore")

    silo: Text = Field(min_length=1, description="The silo, namespace/name.")
    public_key: PublicKey = Field(description="Key with which the silo signs.")
    datasets: tuple[OfferedDataset, ...] = Field(max_length=100, description="What jobs may ask for.")
    policy: FreeForm = Field(description="What the institution permits, as in its Silo, without approvals.")
    time: Text = Field(description="RFC 3339 time of the offer.")
    key_id: KeyId = Field(description="Id of the key that signed.")
    signature: Signature = Field(
        description="Ed25519 signature in the domain fedsilo/offer/v1 (docs/wire.md)."
    )


class FollowedHub(Fields):
    """How far an institution's own cluster has followed what its hub says."""

    hub: KeyId = Field(description="The hub: id of the key with which it signs.")
    version: Integer = Field(
        ge=0, description="Of the newest statement that was followed; an older one has no effect any more."
    )
    public_key: PublicKey | None = Field(
        default=None, description="The silo's key that the hub has taken last by an announcement."
    )
    token_digest: Sha256 | None = Field(default=None, description="SHA-256 of the token that was used last.")


class SiloStatus(Fields):
    """What silo controller and gateway found; fields of later versions are ignored."""

    model_config = ConfigDict(extra="ignore")

    hub: HubAddress | None = Field(default=None, description="Of a remote silo: where it finds the hub.")
    enrolment: Enrolment | None = Field(
        default=None, description="Of a remote silo: the key that it registered."
    )
    rotations: tuple[FreeForm, ...] = Field(
        default=(),
        max_length=64,
        description="Announcements of the silo's keys, of a remote one since its enrolment, each signed by the key "
        "before and by the new one; `docs/wire.md` describes them.",
    )
    leaving: FreeForm | None = Field(
        default=None,
        description="Of a remote silo: its signed statement that it has left; `docs/wire.md` describes it.",
    )
    offer: FreeForm | None = Field(
        default=None,
        description="What the silo offers, signed with its key; `docs/wire.md` describes it.",
    )
    last_seen: Time | None = Field(
        default=None, description="Of a remote silo: about when the gateway heard of it last."
    )
    followed: FollowedHub | None = Field(
        default=None, description="In an institution's own cluster: what of its hub's words was followed."
    )
    public_key: PublicKey | None = Field(
        default=None, description="Key with which the silo signs its updates."
    )
    conditions: tuple[Condition, ...] = Field(default=(), max_length=32, description="Standard conditions.")


class Silo(Fields):
    """One institution that takes part."""

    api_version: Literal["fedsilo.io/v1alpha1"] = Field(default=API_VERSION, description="Group and version.")
    kind: Literal["Silo"] = Field(default="Silo", description="Kind of the object.")
    metadata: Metadata = Field(description="Names and labels; the name is the silo's in every job.")
    spec: SiloSpec = Field(description="What the institution offers, and to whom.")
    status: SiloStatus = Field(default=SiloStatus(), description="What the silo controller found.")

    def dataset(self, name: str) -> DatasetSpec | None:
        """The dataset of that name, if the silo has one."""
        return next((dataset for dataset in self.spec.datasets if dataset.name == name), None)

    def __str__(self) -> str:
        return f"{self.metadata.namespace}/{self.metadata.name}"
