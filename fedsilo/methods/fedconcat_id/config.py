"""Settings of FedConcat-ID, with the number of its random inputs."""

from __future__ import annotations

from pydantic import Field

from fedsilo.methods.fedconcat.config import StagesConfig


class FedConcatIDConfig(StagesConfig):
    """Settings of FedConcat's stages, and from how much a label distribution is inferred."""

    probes: int = Field(
        default=10_000,
        ge=1,
        description="Random inputs r from which a silo's label distribution is inferred [released code].",
    )
