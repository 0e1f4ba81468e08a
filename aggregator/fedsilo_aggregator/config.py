"""What an aggregator is started with: the job, and the public key of each silo."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from pydantic import Field, model_validator

from fedsilo.api.common import Fields, invalid_value
from fedsilo.api.job import FederatedJob
from fedsilo.api.loading import load_document
from fedsilo.wire import VerifyKey, sharing


class SiloKey(Fields):
    """A silo of the job and the key that its updates and requests are signed with."""

    namespace: str = Field(description="Namespace of the silo.")
    name: str = Field(description="Name of the silo.")
    public_key: str = Field(description="`ed25519:` and the base64 of the 32 bytes of the key.")

    @property
    def reference(self) -> str:
        """`namespace/name`, the sender in updates and requests."""
        return f"{self.namespace}/{self.name}"


class AggregatorConfig(Fields):
    """The file that `fedsilo-aggregator --config` reads."""

    job: FederatedJob = Field(description="The job; its metadata carry the uid.")
    silos: tuple[SiloKey, ...] = Field(description="The job's silos, in the order of its references.")

    @model_validator(mode="after")
    def _of_one_silo_each(self) -> Self:
        if shared := sharing({silo.reference: silo.public_key for silo in self.silos}):
            raise invalid_value(
                f"has one key for {shared[0]} and {shared[1]}", "give each silo its own", "silos"
            )
        return self

    def keys(self) -> dict[str, VerifyKey]:
        """Sender -> public key."""
        return {silo.reference: VerifyKey.from_text(silo.public_key) for silo in self.silos}


def load_config(path: Path) -> AggregatorConfig:
    """Read an aggregator's configuration from its file.

    :raises ManifestInvalid: when the file is missing or not what it should be.
    """
    return load_document(path, AggregatorConfig)
