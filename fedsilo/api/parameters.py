"""Where a model's weights begin, and which of them travel."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, StringConstraints, model_validator

from fedsilo.api.common import Fields, Label, Sha256, Text, check_one_of, invalid_value
from fedsilo.api.patterns import TENSOR_PATTERN

TensorPattern = Annotated[str, StringConstraints(pattern=TENSOR_PATTERN, max_length=200)]


class InitialWeightsSpec(Fields):
    """A file of all tensors of the model, which the aggregator reads; silos get it as a blob, by its digest."""

    sha256: Sha256 = Field(description="SHA-256 of the file.")
    file: Text | None = Field(default=None, description="The file, in the safetensors format.")
    run: Text | None = Field(
        default=None, description="Directory of an earlier run, whose model.safetensors is the file."
    )
    persistent_volume_claim: Label | None = Field(
        default=None,
        description="Claim in the job's namespace that holds it, at /data/initial_weights on a cluster.",
    )

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        check_one_of(file=self.file is not None, run=self.run is not None)
        for field in ("file", "run"):
            if getattr(self, field) == "":
                raise invalid_value("is empty", "give the path", field, value="")
        return self

    @property
    def path(self) -> str:
        """Path of the file; a relative one starts from the aggregator's data root."""
        return self.file if self.file is not None else f"{self.run}/model.safetensors"


class ParametersSpec(Fields):
    """The model's tensors in three parts, by patterns of their names; `*`, `?` and `[...]` as in shells."""

    shared: tuple[TensorPattern, ...] = Field(
        default=(),
        max_length=100,
        description="Trained and sent; without patterns all tensors that no other part names.",
    )
    frozen: tuple[TensorPattern, ...] = Field(
        default=(),
        max_length=100,
        description="Not trained, and handed out once; also what no part names where shared has patterns.",
    )
    local: tuple[TensorPattern, ...] = Field(
        default=(), max_length=100, description="Trained, and kept in the silo's private state."
    )

    @model_validator(mode="after")
    def _some_pattern(self) -> Self:
        if not (self.shared or self.frozen or self.local):
            raise invalid_value(
                "has no pattern", "name tensors in shared, frozen or local, or remove parameters"
            )
        return self
