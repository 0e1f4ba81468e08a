"""An institution's policy, and what its people have decided about jobs."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from fedsilo.api.common import (
    MAX_SILOS,
    DatasetName,
    Fields,
    Flag,
    Integer,
    Label,
    LabelKey,
    Number,
    Reference,
    Sha256,
    Text,
    invalid_value,
)
from fedsilo.api.differential_privacy import PrivacyUnit
from fedsilo.api.notations import Duration, Quantity, Time
from fedsilo.api.patterns import IMAGE_BY_DIGEST
from fedsilo.payload_kinds import PayloadKind

PersonalAccuracy = Literal["Withheld", "Mean", "PerSilo"]
ScoreReporting = Literal["Mean", "PerSilo"]
Verdict = Literal["Approved", "Refused"]
"""What a person of the institution says about a job."""

# A covariance matrix shows more of a small class than any other kind, and statistics of features are of the data
# themselves and not of what a model makes of them. Counts of a model's errors are needed by few jobs. An institution
# permits these by name.
DEFAULT_KINDS: tuple[PayloadKind, ...] = ("model", "class_counts", "class_means", "averaged_gradients")

ImageByDigest = Annotated[str, StringConstraints(pattern=IMAGE_BY_DIGEST, max_length=512)]


class Approval(Fields):
    """What a person of the institution decided about one job."""

    job: Text = Field(min_length=1, description="UID of the job; the key of the list.")
    spec_digest: Sha256 = Field(description="Digest of the specification that was decided on.")
    proposal: Sha256 | None = Field(
        default=None,
        description="Digest of the SiloAgent's `status.proposal`; an approval without it lets only an agent go on that "
        "has begun before.",
    )
    decision: Verdict = Field(description="The decision.")
    note: Text = Field(default="", description="Why, for the consortium to read.")
    by: Text | None = Field(
        default=None,
        description="Who decided, for the silo's signed decision to name; `kubectl auth whoami`.",
    )
    time: Text | None = Field(default=None, description="RFC 3339 time at which that was.")


class PrivacyBudget(Fields):
    """How much may be learned of one example or person of a dataset, over all jobs."""

    dataset: DatasetName = Field(description="One of spec.datasets; the key of the list.")
    unit: PrivacyUnit = Field(
        default="example", description="Of what; a job that protects something else is refused."
    )
    epsilon: Number = Field(gt=0, description="Of everything together that leaves about the dataset.")
    delta: Number = Field(gt=0, lt=1, description="At which epsilon is counted.")
    period: Duration | None = Field(
        default=None, description="Time after which what was spent does not count any more; never when null."
    )


class SiloPolicy(Fields):
    """What the institution permits; the guard refuses everything else."""

    methods: tuple[Reference, ...] | None = Field(
        default=None, max_length=100, description="Methods; any when null."
    )
    transforms: tuple[Reference, ...] | None = Field(
        default=None, max_length=100, description="Transforms of other packages that may run; none when null."
    )
    payload_kinds: tuple[PayloadKind, ...] = Field(
        default=DEFAULT_KINDS, max_length=16, description="What may leave the silo."
    )
    min_samples_per_class: Integer = Field(
        default=5, ge=1, description="A class with fewer samples is left out of every per-class quantity."
    )
    min_samples_per_feature: Integer | None = Field(
        default=None,
        ge=1,
        description="A feature with fewer values is left out of feature_statistics, and so is a part of a histogram, "
        "of sums in a job whose minimum is smaller; minSamplesPerClass when null.",
    )
    min_samples_per_update: Integer | None = Field(
        default=None,
        ge=1,
        description="A model that was trained on fewer different examples is not sent, and a job whose steps see fewer "
        "is refused; 5 when null, or minSamplesPerClass where that is smaller.",
    )
    personal_accuracy: PersonalAccuracy = Field(
        default="Mean",
        description="How the accuracy of the silo's own model is reported, if the method trains one: Withheld, it "
        "stays in the silo; Mean, the aggregator reports mean and spread over the silos; PerSilo, with the silo's "
        "name, unless the job has aggregation.secure.",
    )
    scores: ScoreReporting = Field(
        default="Mean",
        description="How the scores of the job's model on the silo's validation examples are reported: Mean, only "
        "together with the other silos'; PerSilo, with the silo's name and number of examples too, if these are as "
        "many as minSamplesPerUpdate asks for, every other silo permits it and the job has no aggregation.secure.",
    )
    max_bytes_per_round: Quantity | None = Field(
        default=None,
        description="Maximum size of an update, with the texts about failures of its exchange; unlimited when null.",
    )
    max_bytes_per_job: Quantity | None = Field(
        default=None,
        description="Maximum size of all updates for a job together, each counted once, and of texts about failures "
        "and data; unlimited when null.",
    )
    job_namespaces: tuple[Label, ...] | None = Field(
        default=None, max_length=100, description="Namespaces whose jobs are admitted; any when null."
    )
    trainer_images: tuple[ImageByDigest, ...] | None = Field(
        default=None, max_length=100, description="Trainer images admitted, by digest; any when null."
    )
    metadata_keys: tuple[LabelKey, ...] | None = Field(
        default=None,
        max_length=100,
        description="Keys of labels and annotations that a job may give the pods here; none when null.",
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
    privacy_budget: tuple[PrivacyBudget, ...] | None = Field(
        default=None,
        min_length=1,
        max_length=100,
        description="Budgets of datasets: about these nothing leaves without differential privacy, nor more than the "
        "budget; unlimited when null.",
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

    def budget_of(self, dataset: str) -> PrivacyBudget | None:
        """The budget of a dataset, if it has one."""
        return next((budget for budget in self.privacy_budget or () if budget.dataset == dataset), None)

    @model_validator(mode="after")
    def _dates_in_order(self) -> Self:
        before, after = self.not_before, self.not_after
        if before is not None and after is not None and after.moment <= before.moment:
            raise invalid_value("is not after notBefore", "write a later time", "notAfter", value=str(after))
        return self
