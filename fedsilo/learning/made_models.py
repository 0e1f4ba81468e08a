"""Models that a method makes of the job's own architecture: their names, and what they are made of. Torch-free."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, field_validator

from fedsilo.api.common import MAX_SILOS, Fields, Integer, invalid_value
from fedsilo.api.job import ModelSpec

CONCATENATED_MODEL = "concatenated"
GATED_MODEL = "gated"
MADE_BY_METHODS = (CONCATENATED_MODEL, GATED_MODEL)


class ModelConfig(Fields):
    """Configuration of a model that a method made of the job's own architecture."""

    base: ModelSpec

    @field_validator("base")
    @classmethod
    def _is_the_jobs_own(cls, base: ModelSpec) -> ModelSpec:
        if base.name in MADE_BY_METHODS:
            raise invalid_value("is made of other models itself", "name an architecture that a job can have")
        return base


class ConcatenatedConfig(ModelConfig):
    """Configuration of the model `concatenated`."""

    encoders: Annotated[Integer, Field(ge=1, le=MAX_SILOS)]


class GatedConfig(ModelConfig):
    """Configuration of the model `gated`."""

    mixes: Literal["logits", "probabilities"]


CONFIGS: Mapping[str, type[ModelConfig]] = {CONCATENATED_MODEL: ConcatenatedConfig, GATED_MODEL: GatedConfig}
"""Name of such a model -> its configuration."""
