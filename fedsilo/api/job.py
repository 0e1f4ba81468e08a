"""The `FederatedJob` resource describes one model trained across silos."""

from __future__ import annotations

from decimal import Decimal
from math import ceil
from typing import Any, Literal, Self

from pydantic import Field, model_validator
from typing_extensions import override

from fedsilo.api.aggregation import AggregationSpec
from fedsilo.api.common import (
    API_VERSION,
    EXAMPLES_OF_AN_UPDATE,
    MAX_SILOS,
    Fields,
    Flag,
    FreeForm,
    Image,
    Integer,
    Labels,
    Metadata,
    Number,
    ObjectRef,
    Reference,
    SecretName,
    Url,
    check_once,
    check_one_of,
    invalid_value,
)
from fedsilo.api.communication import CommunicationSpec, DownloadSpec, UploadSpec
from fedsilo.api.data import UNTRAINED_METHODS, VALIDATION_FRACTION, DataSpec
from fedsilo.api.datasets import DatasetSpec, check_unique_names
from fedsilo.api.differential_privacy import DifferentialPrivacySpec
from fedsilo.api.evaluation import EvaluationSpec
from fedsilo.api.faults import ABSENT_VALUE
from fedsilo.api.notations import Duration
from fedsilo.api.output import MlflowSpec, OutputSpec
from fedsilo.api.parameters import InitialWeightsSpec, ParametersSpec
from fedsilo.api.pod_template import AgentPodTemplate, PodTemplate
from fedsilo.api.quorum import quorum
from fedsilo.api.resources import Resources, StorageSpec
from fedsilo.api.training import TrainingSpec
from fedsilo.api.transforms import Transforms
from fedsilo.files.digests import SHA256

START_DEADLINE = Duration("10m")
"""Time in which all agents of a job run, where its `startDeadline` is null."""


class MethodSpec(Fields):
    """How the silos' work becomes one model."""

    name: Reference = Field(min_length=1, description="Name of the method; `fedsilo methods` lists them.")
    config: FreeForm = Field(default_factory=dict, description="Settings of the method.")


class ModelSpec(Fields):
    """The model's architecture, made of an encoder and a classifier."""

    name: Reference = Field(
        min_length=1, description="Built-in name, torchvision:<resnet> or python:package.module:factory."
    )
    config: FreeForm = Field(default_factory=dict, description="Settings of the architecture.")
    initial_weights: InitialWeightsSpec | None = Field(
        default=None, description="Weights that training starts from; drawn from training.seed when null."
    )
    parameters: ParametersSpec | None = Field(
        default=None, description="Which tensors are shared, frozen or local; all are shared when null."
    )

    def description_fields(self) -> dict[str, Any]:
        """The model as documents describe it, without what is not set."""
        absent = {name for name in ("initial_weights", "parameters") if getattr(self, name) is None}
        return self.model_dump(by_alias=True, mode="json", exclude=absent)


class LearningTaskSpec(Fields):
    """What the model learns of an example."""

    name: Reference = Field(
        min_length=1,
        description="classification, multilabel, regression, segmentation, language or python:package.module:Task.",
    )
    config: FreeForm = Field(default_factory=dict, description="Settings of the learning task.")


class Selector(Fields):
    """Chooses Silos by label."""

    match_labels: Labels = Field(min_length=1, description="Labels that a Silo must carry, all of them.")


class SilosSpec(Fields):
    """The silos that take part, as a list or a selector."""

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
                raise invalid_value("is named twice", "remove one", "refs", position, value=str(ref))
            if ref.name in seen:
                problem = f"has the same name as {seen[ref.name]}"
                raise invalid_value(
                    problem, "rename one: names are unique in a job", "refs", position, value=str(ref)
                )
            seen[ref.name] = ref
        return self


class ParticipationSpec(Fields):
    """How many silos work in a round, and how long the aggregator waits for them."""

    fraction: Number = Field(
        default=1.0, gt=0, le=1, description="Fraction of the silos that is drawn in each round."
    )
    min_silos: Integer | None = Field(
        default=None,
        ge=1,
        le=MAX_SILOS,
        description="Quorum of a round; all silos drawn when null. With aggregation.secure, fewer permit sums over "
        "different silos, whose difference shows what a single one has sent.",
    )
    round_deadline: Duration = Field(
        default=Duration("10m"),
        description="Longest wait for a round; time in which the aggregator is down does not count.",
    )

    def sample_size(self, silos: int) -> int:
        """Silos drawn in a round out of so many: the fraction of them, rounded up.

        The fraction is taken as the decimal that is written: 0.7 of 10 silos are 7, not 8.
        """
        return ceil(Decimal(repr(self.fraction)) * silos)

    def quorum(self, asked: int) -> int:
        """Answers that a round needs in which so many silos are asked."""
        return quorum(self.min_silos, asked)


class PrivacySpec(Fields):
    """Limits that the job sets itself; a silo's policy may be stricter."""

    min_samples_per_class: Integer = Field(
        default=5,
        ge=1,
        le=1_000_000,
        description="A class with fewer samples is left out of per-class quantities.",
    )
    differential_privacy: DifferentialPrivacySpec | None = Field(
        default=None, description="Noise by which one example counts for little; none when null."
    )

    @property
    def min_samples_per_update(self) -> int:
        """Examples that a model which leaves a silo was trained on at least."""
        return min(self.min_samples_per_class, EXAMPLES_OF_AN_UPDATE)


class AggregatorSpec(Fields):
    """Where the aggregator runs and what it holds."""

    resources: Resources = Field(default_factory=dict, description="Resources of the container.")
    storage: StorageSpec = Field(
        default=StorageSpec(), description="The volume of rounds, updates and the model."
    )
    image: Image | None = Field(default=None, description="Image; the operator's own release when null.")
    image_pull_secrets: tuple[SecretName, ...] | None = Field(
        default=None,
        max_length=10,
        description="Secrets of the job's namespace with which the image is pulled; none when null.",
    )
    url: Url | None = Field(
        default=None, description="Address for silos outside the cluster; the Service when null."
    )
    keep_updates: Flag | None = Field(
        default=None,
        description="Every accepted update stays in the volume, for `fedsilo verify --replay`; none does when null.",
    )
    datasets: tuple[DatasetSpec, ...] = Field(
        default=(),
        max_length=100,
        description="Datasets that the aggregator itself holds, such as a public test set.",
    )
    pod_template: PodTemplate | None = Field(
        default=None, description="What the platform asks of the aggregator's pod; nothing when null."
    )

    @model_validator(mode="after")
    def _lists_of_pods(self) -> Self:
        check_once("imagePullSecrets", self.image_pull_secrets)
        check_unique_names(self.datasets)
        for position, dataset in enumerate(self.datasets):
            if dataset.volume is not None and dataset.volume.host_path is not None:
                # Whoever may create a job need not be one who may read the disks of its nodes.
                raise invalid_value(
                    "is a directory of the node, which a job may not mount",
                    "use a persistentVolumeClaim",
                    *("datasets", position, "volume", "hostPath"),
                    value=dataset.volume.host_path,
                )
        return self


class AgentsSpec(Fields):
    """What the job decides about the agents in the silos."""

    image: Image | None = Field(
        default=None, description="Image of the trainer; the operator's release when null."
    )
    pod_template: AgentPodTemplate | None = Field(
        default=None, description="What the job asks for the pods of its agents; nothing when null."
    )


class FederatedJobSpec(Fields):
    """The whole intent of a job; all but suspend and ttlSecondsAfterFinished is immutable."""

    method: MethodSpec = Field(description="How the silos' work becomes one model.")
    model: ModelSpec = Field(description="The architecture.")
    task: LearningTaskSpec | None = Field(
        default=None, description="What the model learns of an example; its class when null."
    )
    data: DataSpec = Field(description="What the aggregator must know about the data.")
    training: TrainingSpec = Field(description="Rounds, and what a silo does in each.")
    aggregation: AggregationSpec = Field(default=AggregationSpec(), description="How silos are weighted.")
    silos: SilosSpec = Field(description="Who takes part.")
    participation: ParticipationSpec = Field(
        default=ParticipationSpec(), description="How many silos work in a round."
    )
    start_deadline: Duration | None = Field(
        default=None,
        description="Time in which all agents run, or the job frees what it holds and tries again later; "
        "10m when null.",
    )
    priority: Integer | None = Field(
        default=None,
        ge=-1000,
        le=1000,
        description="Which of the jobs that wait for the same silos goes first: the highest; 0 when null.",
    )
    communication: CommunicationSpec | None = Field(
        default=None, description="In how many bytes tensors travel; as they are when null."
    )
    transforms: Transforms | None = Field(
        default=None,
        description="Transforms of other packages that an update passes in this order; none when null.",
    )
    evaluation: EvaluationSpec = Field(
        default=EvaluationSpec(), description="When and on what the model is scored."
    )
    privacy: PrivacySpec = Field(default=PrivacySpec(), description="Limits that the job sets itself.")
    aggregator: AggregatorSpec = Field(default=AggregatorSpec(), description="Where the aggregator runs.")
    agents: AgentsSpec = Field(default=AgentsSpec(), description="What the job decides about the agents.")
    output: OutputSpec | None = Field(default=None, description="What the job leaves beside its model.")
    suspend: Flag = Field(
        default=False, description="Stops the pods and keeps completed rounds; false continues."
    )
    backoff_limit: Integer = Field(
        default=6, ge=0, le=1000, description="Restarts of a pod before the job fails."
    )
    ttl_seconds_after_finished: Integer | None = Field(
        default=None,
        ge=0,
        le=2**31 - 1,
        description="Seconds after which a finished job is deleted; never its model.",
    )

    @property
    def start_seconds(self) -> int:
        """Time in which all agents run, in seconds."""
        return (self.start_deadline or START_DEADLINE).seconds

    @property
    def mlflow(self) -> MlflowSpec | None:
        """The MLflow server that is told of the job, where there is one."""
        return None if self.output is None else self.output.mlflow

    @property
    def upload(self) -> UploadSpec:
        """How silos send the model's tensors."""
        given = None if self.communication is None else self.communication.upload
        return given or UploadSpec()

    @property
    def download(self) -> DownloadSpec:
        """How the aggregator sends the model's tensors."""
        given = None if self.communication is None else self.communication.download
        return given or DownloadSpec()

    @property
    def digest_algorithm(self) -> str:
        """The hash of blobs and of blocks of updates."""
        given = None if self.communication is None else self.communication.digest
        return given or SHA256

    @property
    def task_summary(self) -> str:
        """What the model learns, in few words: `10 classes`, `regression`, `multilabel, 5 classes`."""
        task = [] if self.task is None else [self.task.name]
        classes = [] if self.data.classes is None else [f"{self.data.class_count} classes"]
        return ", ".join([*task, *classes])

    @model_validator(mode="after")
    def _classes_are_said(self) -> Self:
        if self.task is None and self.data.classes is None:
            problem, remedy = (
                "is missing, which a job without task needs",
                "write how many there are, or their names",
            )
            raise invalid_value(problem, remedy, "data", "classes", value=ABSENT_VALUE)
        return self

    @model_validator(mode="after")
    def _some_data_is_held_out(self) -> Self:
        if self.data.validation_fraction is None and self.method.name not in UNTRAINED_METHODS:
            data = self.data.model_copy(update={"validation_fraction": VALIDATION_FRACTION})
            object.__setattr__(self, "data", data)
        return self

    @model_validator(mode="after")
    def _augmentation_fits_the_data(self) -> Self:
        augmentation, shape = self.training.augmentation, self.data.input_shape
        if augmentation is None:
            return self
        if len(shape) != 3:
            problem = "is no image, which training.augmentation changes"
            raise invalid_value(problem, "remove the augmentation", "data", "inputShape", value=list(shape))
        if augmentation.crop >= min(shape[1:]):
            problem = f"is not below the sides of {shape[1]} x {shape[2]} pixels"
            remedy = "use an eighth of a side, which is usual"
            raise invalid_value(problem, remedy, "training", "augmentation", "crop", value=augmentation.crop)
        return self


class FederatedJob(Fields):
    """One federated training job: what is trained, how, and by whom."""

    api_version: Literal["fedsilo.io/v1alpha1"] = Field(default=API_VERSION, description="Group and version.")
    kind: Literal["FederatedJob"] = Field(default="FederatedJob", description="Kind of the object.")
    metadata: Metadata = Field(description="Names and labels.")
    spec: FederatedJobSpec = Field(description="The whole intent.")
    status: FreeForm = Field(
        default_factory=dict, description="Written by operator and aggregator; not read here."
    )

    @override
    def __str__(self) -> str:
        return f"{self.metadata.namespace}/{self.metadata.name}"
