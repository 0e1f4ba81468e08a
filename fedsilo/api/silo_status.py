"""What silo controller and gateway found about a Silo: hub, enrolment, keys and offer."""

from __future__ import annotations

from pydantic import ConfigDict, Field

from fedsilo.api.budgets import BudgetStatus
from fedsilo.api.common import (
    CertificatePem,
    Condition,
    DatasetName,
    Dimension,
    Fields,
    FreeForm,
    Integer,
    KeyId,
    PublicKey,
    Sha256,
    Signature,
    Text,
    Url,
)
from fedsilo.api.notations import Time


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
        default=None, max_length=4, description="Shape of one example, where the silo states it."
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
    privacy_budget: tuple[BudgetStatus, ...] = Field(
        default=(), max_length=100, description="What is spent of the policy's budgets, one for each dataset."
    )
    conditions: tuple[Condition, ...] = Field(default=(), max_length=32, description="Standard conditions.")
