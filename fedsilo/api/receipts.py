"""What has left a silo for a job, as its SiloAgent states it: bounded, whatever the job's length.

The audit log in the silo holds all of it; what stands here is the guard's summary of that log.
"""

from __future__ import annotations

from pydantic import ConfigDict, Field

from fedsilo.api.common import Fields, Integer, Sha256, Text

MAX_LATEST = 16
"""Updates that are stated one by one."""


class DepartedKind(Fields):
    """What an update holds of one payload kind."""

    model_config = ConfigDict(extra="ignore")

    kind: Text = Field(description="Payload kind.")
    blocks: Integer = Field(ge=0, description="Number of its tensors.")
    bytes: Integer = Field(ge=0, description="Bytes of its tensors.")


class StatedDeparture(Fields):
    """One update that was signed to leave."""

    model_config = ConfigDict(extra="ignore")

    round: Integer = Field(ge=0, description="Round of the job.")
    phase: Text = Field(description="Phase of the job.")
    kinds: tuple[DepartedKind, ...] = Field(
        default=(), max_length=16, description="Its contents; scalars alone when empty."
    )
    bytes: Integer = Field(ge=0, description="Bytes of the whole update.")
    digest: Sha256 = Field(description="SHA-256 of the update; the job's provenance names the same.")
    outcome: Text = Field(
        description="`accepted`, `sent, not acknowledged`, or the code with which the aggregator refused it."
    )


class StatedReceipts(Fields):
    """What left the silo: all of it in numbers, the latest updates one by one."""

    model_config = ConfigDict(extra="ignore")

    audit_lines: Integer = Field(ge=0, description="Lines of the audit log that this summarises.")
    audit_hash: Sha256 = Field(description="Hash of the last of them.")
    updates: Integer = Field(ge=0, description="Number of updates.")
    bytes: Integer = Field(ge=0, description="Bytes of all updates.")
    latest: tuple[StatedDeparture, ...] = Field(
        default=(), max_length=MAX_LATEST, description="The latest updates, the last one last."
    )
