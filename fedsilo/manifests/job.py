"""The `FederatedJob` resource: one model trained across silos."""

from __future__ import annotations

from decimal import Decimal
from math import ceil
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from fedsilo.manifests.common import (
    API_VERSION,
    MAX_SILOS,
    Condition,
    DatasetName,
    Duration,
    Fields,
    Flag,
    FreeForm,
    Image,
    Integer,
    Label,
    Labels,
    Metadata,
    Number,
    ObjectRef,
    Reference,
    Sha256,
    StorageSpec,
    Text,
    Url,
    check_one_of,
    wrong,
)
from fedsilo.manifests.silo import DatasetSpec, Resources, check_unique_names

Dimension = Annotated[Integer, Field(ge=1, le=65536)]


class MethodSpec(Fields):
    """How the silos' work becomes one model."""

    name: Reference = Field(min_length=1, description="Name of the method; `fedsilo methods` lists them.")
    config: FreeForm = Field(default_factory=dict, description="Settings of the method.")


class ModelSpec(Fields):
    """The architecture: an encoder and a classifier."""

    name: Reference = Field(
        min_length=1, description="Built-in name, torchvision:<resnet> or python:package.module:factory."
    )
    config: FreeForm = Field(default_factory=dict, description="Settings of the architecture.")


class DataSpec(Fields):
    """The data, as far as the aggregator must know them to build the model without seeing any."""

    dataset: DatasetName = Field(description="Name of the dataset that each silo must offer.")
    classes: Integer = Field(ge=2, le=100_000, description="Number of classes; labels are 0 to classes - 1.")
    input_shape: tuple[Dimension, ...] = Field(
        min_length=1,
        max_length=3,
        description="Shape of one example: [channels, height, width] or [features].",
    )
    validation_fraction: Number = Field(
        default=0.1, ge=0, lt=1, description="Part of each silo's data that is kept out of training."
    )


class OptimizerSpec(Fields):
    """The silos' local optimiser; it starts anew in every round."""

    name: Literal["sgd"] = Field(default="sgd", description="Stochastic gradient descent.")
    learning_rate: Number = Field(
        default=0.01, gt=0, le=1000, description="Step size before schedule and warm-up."
    )
    momentum: Number = Field(default=0.9, ge=0, lt=1, description="Heavy-ball momentum.")
    weight_decay: Number = Field(default=0.0, ge=0, le=1000, description="L2 penalty added to the gradient.")


class AugmentationSpec(Fields):
    """How images are changed each time they are learned from; never where a model is scored."""

    crop: Integer = Field(
        default=0,
        ge=0,
        le=65536,
        description="Pixels of border on each side; a crop of the old size is kept.",
    )
    border: Literal["zero", "reflect"] = Field(default="zero", description="What the border shows.")
    flip: Flag = Field(default=False, description="Mirrors left and right in half of the cases.")
    rotation: Number = Field(
        default=0.0, ge=0, le=180, description="Largest angle in degrees, to either side."
    )
    per: Literal["image", "batch"] = Field(
        default="image", description="What is drawn for: every image, or a batch as a whole."
    )


class TrainingSpec(Fields):
    """Rounds, and what a silo does in each."""

    rounds: Integer = Field(ge=1, le=10_000, description="Number of rounds.")
    local_epochs: Integer = Field(
        default=1, ge=1, le=10_000, description="Passes over the silo's data per round."
    )
    batch_size: Integer = Field(default=32, ge=1, le=1_000_000, description="Examples per step.")
    seed: Integer = Field(
        default=0, ge=0, le=2**53 - 1, description="Seed from which every other is derived."
    )
    threads: Integer = Field(default=1, ge=1, le=1024, description="CPU threads of each process.")
    device: Literal["auto", "cpu", "cuda"] = Field(
        default="auto", description="Where to compute; auto is cuda where there is one."
    )
    precision: Literal["float32", "bfloat16"] = Field(
        default="float32",
        description="Of the forward pass; bfloat16 is mixed precision, weights stay float32.",
    )
    optimizer: OptimizerSpec = Field(default=OptimizerSpec(), description="The silos' local optimiser.")
    schedule: Literal["constant", "cosine", "exponential"] = Field(
        default="constant", description="Learning rate over the rounds."
    )
    decay: Number = Field(
        default=1.0, gt=0, le=1, description="Factor per round of the exponential schedule."
    )
    warmup_rounds: Integer = Field(
        default=0, ge=0, le=10_000, description="Rounds in which the learning rate rises to its value."
    )
    gradient_clip: Number | None = Field(
        default=None, gt=0, description="Largest global gradient norm; none when null."
    )
    min_steps: Integer = Field(
        default=1, ge=1, le=1_000_000, description="Least steps per round: a small silo repeats its data."
    )
    augmentation: AugmentationSpec | None = Field(
        default=None, description="Random changes of the images that are learned from; none when null."
    )


class AggregationSpec(Fields):
    """How much each silo counts."""

    weights: Literal["samples", "uniform"] | None = Field(
        default=None, description="By number of samples or all alike; the method's own rule when null."
    )


class Selector(Fields):
    """Chooses Silos by label."""

    match_labels: Labels = Field(min_length=1, description="Labels that a Silo must carry, all of them.")


class SilosSpec(Fields):
    """Who takes part: a list or a selector."""

    refs: tuple[ObjectRef, ...] = Field(
        default=(), max_length=MAX_SILOS, description="The silos by name; updates are folded in this order."
    )
    selector: Selector | None = Field(
        default=None, description="The silos by label, in order of namespace and name."
    )

    @model_validator(mode="after")
    def _refs_or_selector(self) -> Self:
        check_one_of(refs=bool(self.refs), selector=self.selector is not None)
        seen: dict[str, ObjectRef] = {}
        for position, ref in enumerate(self.refs):
            if ref == seen.get(ref.name):
                raise wrong("is named twice", "remove one", "refs", position, value=str(ref))
            if ref.name in seen:
                problem = f"has the same name as {seen[ref.name]}"
                raise wrong(
                    problem, "rename one: names are unique in a job", "refs", position, value=str(ref)
                )
            seen[ref.name] = ref
        return self


class ParticipationSpec(Fields):
    """How many silos work in a round, and how long the aggregator waits for them."""

    fraction: Number = Field(
        default=1.0, gt=0, le=1, description="Part of the silos that is drawn in each round."
    )
    min_silos: Integer | None = Field(
        default=None, ge=1, le=MAX_SILOS, description="Quorum of a round; all silos drawn when null."
    )
    round_deadline: Duration = Field(
        default=Duration("10m"),
        description="Longest wait for a round; time in which the aggregator is down is free.",
    )

    def sampled(self, silos: int) -> int:
        """Silos drawn in a round out of so many: the fraction of them, rounded up.

        The fraction is taken as the decimal that is written: 0.7 of 10 silos are 7, not 8.
        """
        return ceil(Decimal(repr(self.fraction)) * silos)


class EvaluationSpec(Fields):
    """When and on what the model is scored."""

    every: Integer = Field(
        default=1, ge=1, le=10_000, description="Rounds between evaluations; the last round always is."
    )
    test_dataset: DatasetName | None = Field(
        default=None, description="One of aggregator.datasets; the silos score on validation data when null."
    )


class PrivacySpec(Fields):
    """Limits that the job sets itself; a silo's policy may be stricter."""

    min_samples_per_class: Integer = Field(
        default=5,
        ge=1,
        le=1_000_000,
        description="A class with fewer samples is left out of per-class quantities.",
    )


class AggregatorSpec(Fields):
    """Where the aggregator runs and what it holds."""

    resources: Resources = Field(default_factory=dict, description="Resources of the container.")
    storage: StorageSpec = Field(
        default=StorageSpec(), description="The volume of rounds, updates and the model."
    )
    image: Image | None = Field(default=None, description="Image; the operator's own release when null.")
    url: Url | None = Field(
        default=None, description="Address for silos outside the cluster; the Service when null."
    )
    datasets: tuple[DatasetSpec, ...] = Field(
        default=(),
        max_length=100,
        description="Datasets that the aggregator itself holds, such as a public test set.",
    )

    @model_validator(mode="after")
    def _checked_datasets(self) -> Self:
        check_unique_names(self.datasets)
        for position, dataset in enumerate(self.datasets):
            if dataset.volume is not None and dataset.volume.host_path is not None:
                # Whoever may create a job need not be one who may read the disks of its nodes.
                raise wrong(
                    "is a directory of the node, which a job may not mount",
                    "use a persistentVolumeClaim",
                    *("datasets", position, "volume", "hostPath"),
                    value=dataset.volume.host_path,
                )
        return self


class OutputSpec(Fields):
    """What the job leaves beside its model."""

    tensorboard: Flag = Field(
        default=False, description="Learning curves as a file for TensorBoard, curves.tfevents."
    )


class AgentsSpec(Fields):
    """What the job decides about the agents in the silos."""

    image: Image | None = Field(
        default=None, description="Image of the trainer; the operator's release when null."
    )


class FederatedJobSpec(Fields):
    """The whole intent; all but suspend and ttlSecondsAfterFinished is immutable."""

    method: MethodSpec = Field(description="How the silos' work becomes one model.")
    model: ModelSpec = Field(description="The architecture.")
    data: DataSpec = Field(description="The data, as far as the aggregator must know them.")
    training: TrainingSpec = Field(description="Rounds, and what a silo does in each.")
    aggregation: AggregationSpec = Field(default=AggregationSpec(), description="How much each silo counts.")
    silos: SilosSpec = Field(description="Who takes part.")
    participation: ParticipationSpec = Field(
        default=ParticipationSpec(), description="How many silos work in a round."
    )
    evaluation: EvaluationSpec = Field(
        default=EvaluationSpec(), description="When and on what the model is scored."
    )
    privacy: PrivacySpec = Field(default=PrivacySpec(), description="Limits that the job sets itself.")
    aggregator: AggregatorSpec = Field(default=AggregatorSpec(), description="Where the aggregator runs.")
    agents: AgentsSpec = Field(default=AgentsSpec(), description="What the job decides about the agents.")
    output: OutputSpec | None = Field(default=None, description="What the job leaves beside its model.")
    suspend: Flag = Field(default=False, description="Stops the pods and keeps the rounds; false goes on.")
    backoff_limit: Integer = Field(
        default=6, ge=0, le=1000, description="Restarts of a pod before the job fails."
    )
    ttl_seconds_after_finished: Integer | None = Field(
        default=None,
        ge=0,
        le=2**31 - 1,
        description="Seconds after which a finished job is deleted; never its model.",
    )

    @model_validator(mode="after")
    def _augmentation_fits_the_data(self) -> Self:
        augmentation, shape = self.training.augmentation, self.data.input_shape
        if augmentation is None:
            return self
        if len(shape) != 3:
            problem = "is no image, which training.augmentation changes"
            raise wrong(problem, "remove the augmentation", "data", "inputShape", value=list(shape))
        if augmentation.crop >= min(shape[1:]):
            problem = f"is not below the sides of {shape[1]} x {shape[2]} pixels"
            remedy = "use an eighth of a side, which is usual"
            raise wrong(problem, remedy, "training", "augmentation", "crop", value=augmentation.crop)
        return self


class FederatedJob(Fields):
    """One federation: what is trained, how, and by whom."""

    api_version: Literal["fedsilo.io/v1alpha1"] = Field(default=API_VERSION, description="Group and version.")
    kind: Literal["FederatedJob"] = Field(default="FederatedJob", description="Kind of the object.")
    metadata: Metadata = Field(description="Names and labels.")
    spec: FederatedJobSpec = Field(description="The whole intent.")
    status: FreeForm = Field(
        default_factory=dict, description="Written by operator and aggregator; not read here."
    )

    def __str__(self) -> str:
        return f"{self.metadata.namespace}/{self.metadata.name}"


class ModelStatus(Fields):
    """Where the model is, and its digest."""

    claim: Label | None = Field(default=None, description="PersistentVolumeClaim that holds it.")
    path: Text = Field(description="File in the aggregator's volume.")
    sha256: Sha256 = Field(description="Digest of that file.")


class CurvePoint(Fields):
    """What a round came to."""

    round: Integer = Field(ge=1, description="Its number.")
    metrics: dict[str, Number] = Field(default_factory=dict, max_length=8, description="Scores by name.")
    training: dict[str, Number] = Field(
        default_factory=dict, max_length=8, description="Training figures, averaged over the silos."
    )


class SiloStatusEntry(Fields):
    """One silo as the job sees it: the operator says how its agent is, the aggregator what it contributed."""

    name: Text = Field(description="Name of the silo; the key of the list.")
    namespace: Text | None = Field(default=None, description="Namespace of the silo.")
    phase: Text | None = Field(default=None, description="What the silo's agent does now.")
    message: Text | None = Field(default=None, description="What a person should know.")
    state: Text | None = Field(
        default=None, description="What the aggregator knows: Awaited, Reported, Failed."
    )
    last_round: Integer | None = Field(
        default=None, ge=0, description="Last round whose update was accepted."
    )
    samples: Integer | None = Field(default=None, ge=0, description="Sample count of that update.")
    bytes_sent: Integer | None = Field(default=None, ge=0, description="Bytes of its accepted updates.")
    update: Sha256 | None = Field(
        default=None, description="Digest of the last of them, as in the silo's own audit log."
    )
    personal_accuracy: Number | None = Field(
        default=None, description="Accuracy of its own model, where every silo with one lets it be told."
    )


class FederatedJobStatus(Fields):
    """What was observed; operator and aggregator each own their fields."""

    observed_generation: Integer | None = Field(
        default=None, description="Generation that the operator acted on."
    )
    phase: Text | None = Field(default=None, description="Summary of the conditions, for people.")
    conditions: tuple[Condition, ...] = Field(default=(), max_length=32, description="Standard conditions.")
    start_time: Text | None = Field(default=None, description="RFC 3339 time of the first start.")
    completion_time: Text | None = Field(default=None, description="RFC 3339 time of the end.")
    round: Integer | None = Field(default=None, ge=0, description="Last complete round.")
    rounds: Integer | None = Field(default=None, ge=0, description="Rounds in all.")
    progress: Text | None = Field(default=None, description="Rounds as text, such as 7/50.")
    silo_progress: Text | None = Field(
        default=None, description="Silos that answered in the open round, such as 4/5."
    )
    step: Text | None = Field(default=None, description="Phase of the method that the open round belongs to.")
    round_start_time: Text | None = Field(
        default=None, description="RFC 3339 time at which the open round began."
    )
    round_deadline: Text | None = Field(
        default=None,
        description="RFC 3339 time at which the open round ends, if the aggregator keeps serving.",
    )
    metrics: dict[str, Number] = Field(
        default_factory=dict, max_length=100, description="Latest scores by name."
    )
    training: dict[str, Number] = Field(
        default_factory=dict, max_length=100, description="Latest training figures, averaged over the silos."
    )
    curve: tuple[CurvePoint, ...] = Field(
        default=(), max_length=100, description="Learning curves: completed rounds, of many only some."
    )
    parameters: Integer | None = Field(default=None, ge=0, description="Numbers in the job's model.")
    refused: dict[str, Integer] = Field(
        default_factory=dict, max_length=100, description="Refused requests and updates by problem code."
    )
    model: ModelStatus | None = Field(default=None, description="The model, once the job is complete.")
    silos: tuple[SiloStatusEntry, ...] = Field(
        default=(), max_length=MAX_SILOS, description="The silos, by name."
    )
