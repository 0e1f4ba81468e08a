"""The `aggregation` section of a FederatedJob: how silos are weighted, and what one of them may do to the mean."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from fedsilo.api.common import DatasetName, Fields, Flag, Integer, Number, invalid_value
from fedsilo.api.faults import ABSENT_VALUE

RuleName = Literal["norm-clipping", "median", "trimmed-mean", "krum", "multi-krum", "geometric-median"]

FIELDS: dict[RuleName, str | None] = {
    "norm-clipping": "norm",
    "median": None,
    "trimmed-mean": "byzantine",
    "krum": "byzantine",
    "multi-krum": "byzantine",
    "geometric-median": None,
}
"""Rule -> the field that it must have."""

MAX_SILOS = 256
"""Silos of a job with a rule: all updates of a round are open at once."""


class RuleSpec(Fields):
    """What takes the place of the mean of the silos' models, so that a few of them cannot move it at will."""

    name: RuleName = Field(description="The rule; docs/robust-aggregation.md compares them.")
    byzantine: Integer | None = Field(
        default=None,
        ge=1,
        description="Silos that may send anything; for trimmed-mean, krum and multi-krum.",
    )
    norm: Number | None = Field(
        default=None,
        gt=0,
        description="L2 norm that a silo's change of the model is clipped to; for norm-clipping.",
    )
    selected: Integer | None = Field(
        default=None,
        ge=1,
        description="Models that multi-krum averages; all but byzantine and two more when null.",
    )

    @property
    def fewest_silos(self) -> int:
        """Answers without which the rule has no meaning: 2f + 1 for trimming, 2f + 3 for Krum (Blanchard et al.)."""
        if self.byzantine is None:
            return 3 if "median" in self.name else 1
        return 2 * self.byzantine + (1 if self.name == "trimmed-mean" else 3)

    @model_validator(mode="after")
    def _fields_of_the_rule(self) -> Self:
        needed = FIELDS[self.name]
        for field in ("byzantine", "norm"):
            value = getattr(self, field)
            if field == needed and value is None:
                raise invalid_value(
                    f"is missing, which {self.name} needs", "add it", field, value=ABSENT_VALUE
                )
            if field != needed and value is not None:
                raise invalid_value(f"has no meaning for {self.name}", "remove it", field, value=value)
        if self.selected is not None and self.name != "multi-krum":
            raise invalid_value(
                f"has no meaning for {self.name}", "remove it", "selected", value=self.selected
            )
        return self


class AggregationSpec(Fields):
    """How silos are weighted, and what else the aggregator learns from."""

    weights: Literal["samples", "uniform"] | None = Field(
        default=None,
        description="By number of samples or equally; the method's own rule when null. Under differential privacy "
        "silos state no number of samples: it is uniform.",
    )
    public_dataset: DatasetName | None = Field(
        default=None,
        description="One of aggregator.datasets, of public examples; for methods that learn from such at the "
        "aggregator.",
    )
    rule: RuleSpec | None = Field(
        default=None,
        description="In place of the mean, so that a few silos cannot move the model at will; the mean when null.",
    )
    secure: Flag | None = Field(
        default=None,
        description="Whether the aggregator learns sums over the silos only, and nothing of a single one: "
        "docs/secure-aggregation.md.",
    )
