"""The `data` section of a FederatedJob: what the examples are, without seeing them."""

from __future__ import annotations

from typing import Final, Literal, Self

from pydantic import Field, model_validator

from fedsilo.api.class_names import Classes
from fedsilo.api.common import DatasetName, Dimension, Fields, Flag, Number, invalid_value

VALIDATION_FRACTION: Final = 0.1
"""Fraction of each silo's data that is kept out of training where the job does not say."""

UNTRAINED_METHODS: Final = ("statistics",)
"""Built-in methods that train nothing, and are of all examples where a job does not say otherwise.

A list, since no digest of a specification may depend on which packages are installed; whatever else hangs on it asks
the method (`JobModels.scored`).
"""


class PreprocessingSpec(Fields):
    """What is done with every value before the model gets it, by statistics of all silos' training examples."""

    standardise: Flag = Field(
        default=False,
        description="Take off the mean of each column, or channel of images, and divide by its standard deviation.",
    )
    impute: Literal["mean"] | None = Field(
        default=None,
        description="What a missing value (NaN) is replaced by: the mean of its column. Refused when null.",
    )

    @model_validator(mode="after")
    def _does_something(self) -> Self:
        if not self.standardise and self.impute is None:
            raise invalid_value(
                "and impute together do nothing",
                "set standardise: true or impute: mean",
                "standardise",
                value=False,
            )
        return self


class DataSpec(Fields):
    """What the aggregator must know about the data to build the model without seeing them."""

    dataset: DatasetName = Field(description="Name of the dataset that each silo must offer.")
    classes: Classes | None = Field(
        default=None,
        description="Names of the classes in the order of their labels, or their number where the data have none; "
        "null where the learning task has no classes.",
    )
    input_shape: tuple[Dimension, ...] = Field(
        min_length=1,
        max_length=4,
        description="Shape of one example: [features], [channels, height, width] or [channels, depth, height, width].",
    )
    validation_fraction: Number | None = Field(
        default=None,
        ge=0,
        lt=1,
        description="Fraction of each silo's data that is kept out of training; when null 0.1, or 0 where the method "
        "trains nothing.",
    )
    on_schema_mismatch: Literal["refuse", "map"] | None = Field(
        default=None,
        description="`map` admits names that differ in case, surrounding white space or order; refuse when null.",
    )
    preprocessing: PreprocessingSpec | None = Field(
        default=None,
        description="Imputation and standardisation, which silos send statistics for before round 1; none when null.",
    )
    check: Literal["report", "refuse"] | None = Field(
        default=None,
        description="Have every silo say before round 1 whether its data fit; `refuse` ends the job where they do not, "
        "`report` goes on. No check when null.",
    )

    @property
    def class_count(self) -> int:
        """How many classes there are; labels are 0 to `class_count` - 1. 0 where the task has none."""
        return self.classes if isinstance(self.classes, int) else len(self.classes or ())

    @property
    def imputes(self) -> bool:
        """Whether values may be missing."""
        return self.preprocessing is not None and self.preprocessing.impute is not None

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """Their names in the order of the labels; None where the job gives their number only."""
        return self.classes if isinstance(self.classes, tuple) else None

    def class_label(self, label: int) -> str:
        """What people read of a class: its name, or its number where it has none."""
        return str(label) if self.class_names is None else self.class_names[label]
