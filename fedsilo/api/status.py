"""The status of a FederatedJob: what was observed, by whom."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Literal

from pydantic import Field

from fedsilo.api.common import (
    MAX_SILOS,
    Condition,
    Fields,
    Integer,
    Label,
    Number,
    QualifiedName,
    Sha256,
    Text,
)
from fedsilo.api.conditions import ConditionType
from fedsilo.api.scores import ScoresStatus
from fedsilo.api.timestamps import timestamp


class ModelStatus(Fields):
    """Where the model is, and its digest."""

    claim: Label | None = Field(default=None, description="PersistentVolumeClaim that holds it.")
    path: Text = Field(description="File in the aggregator's volume.")
    sha256: Sha256 = Field(description="Digest of that file.")


class BestStatus(Fields):
    """The best model so far, by `spec.evaluation.best`."""

    round: Integer = Field(ge=1, description="Round that it is of.")
    metric: Text = Field(description="Score by which it is.")
    value: Number = Field(description="Its value.")


class OutputStatus(Fields):
    """What became of something that the job leaves beside its model."""

    name: Text = Field(description="The output, by its field of spec.output, such as `mlflow`.")
    delivered: bool = Field(description="Whether it has all that there is so far.")
    message: Text | None = Field(default=None, description="Why it has not, and what to do.")


class DataFinding(Fields):
    """What the check before round 1 found of a silo's data."""

    silo: Text = Field(description="Whose data it is about; the test set's where it is not a silo's.")
    severity: Text = Field(description="error, warning or note.")
    code: Text = Field(description="What is wrong, in one word.")
    place: Text = Field(description="Where in the data.")
    value: Text = Field(description="What was found there.")
    remedy: Text = Field(description="What a person can do.")


class ClassStatus(Fields):
    """What the last evaluation found of one class."""

    name: Text | None = Field(default=None, description="Its name, where the job or the silos have one.")
    figures: dict[str, Number] = Field(
        default_factory=dict,
        max_length=20,
        description="Its metrics by name; one that is undefined is left out.",
    )
    answers: tuple[Integer, ...] = Field(
        default=(),
        max_length=50,
        description="Its examples by the model's answer, where the job asks for counts.",
    )


class CurvePoint(Fields):
    """The figures of a completed round."""

    round: Integer = Field(ge=1, description="Its number.")
    metrics: dict[str, Number] = Field(default_factory=dict, max_length=20, description="Scores by name.")
    training: dict[str, Number] = Field(
        default_factory=dict, max_length=20, description="Training figures, averaged over the silos."
    )


class SiloStatusEntry(Fields):
    """One silo as the job sees it: the operator reports the state of its agent, the aggregator what it contributed."""

    name: Text = Field(description="Name of the silo; the key of the list.")
    namespace: Text | None = Field(default=None, description="Namespace of the silo.")
    phase: Text | None = Field(default=None, description="What the silo's agent does now.")
    message: Text | None = Field(default=None, description="What a person should know.")
    state: Text | None = Field(
        default=None, description="What the aggregator knows: Awaited, Reported, Failed."
    )
    hindrance: Text | None = Field(
        default=None,
        description="What keeps its guard from going on, in one word, as it says itself: StorageFull, AuditFull.",
    )
    last_round: Integer | None = Field(
        default=None, ge=0, description="Last round whose update was accepted."
    )
    samples: Integer | None = Field(default=None, ge=0, description="Sample count of that update.")
    bytes_sent: Integer | None = Field(default=None, ge=0, description="Bytes of its accepted updates.")
    update: Sha256 | None = Field(
        default=None, description="Digest of the last of them, as in the silo's own audit log."
    )
    kept: Number | None = Field(
        default=None,
        ge=0,
        le=1,
        description="How much of its last model counted, where spec.aggregation.rule may leave some of it out.",
    )
    personal_accuracy: Number | None = Field(
        default=None, description="Accuracy of its own model, if every silo that has one permits it."
    )


class AwaitedAgent(Fields):
    """A silo whose agent has not got what it needs to run."""

    silo: QualifiedName = Field(description="The silo, namespace/name.")
    reason: Text = Field(description="Why its agent does not run, in one CamelCase word.")
    message: Text = Field(description="Why, as the silo's agent says it; cut to 1,024 characters.")


class GangStatus(Fields):
    """How all agents of a job come to run together, there while they do not."""

    attempt: Integer = Field(
        default=0, ge=0, description="How often the job was put off since all its agents ran last."
    )
    deadline: Text | None = Field(
        default=None, description="RFC 3339 time until which all agents run, or the job frees what it holds."
    )
    retry_time: Text | None = Field(
        default=None,
        description="RFC 3339 time at which a job that is put off, and holds nothing, tries again at the latest.",
    )
    awaited: tuple[AwaitedAgent, ...] = Field(
        default=(), max_length=100, description="Agents for which there is no room, 100 at most."
    )
    competitors: tuple[QualifiedName, ...] = Field(
        default=(),
        max_length=20,
        description="Jobs that ran in those silos, or went first, when the job was put off; 20 at most.",
    )


class FederatedJobStatus(Fields):
    """The observed state of a job, of which operator and aggregator each own their fields."""

    observed_generation: Integer | None = Field(
        default=None, description="Generation that the operator acted on."
    )
    phase: Text | None = Field(default=None, description="Summary of the conditions, for people.")
    conditions: tuple[Condition, ...] = Field(default=(), max_length=32, description="Standard conditions.")
    start_time: Text | None = Field(default=None, description="RFC 3339 time of the first start.")
    gang: GangStatus | None = Field(
        default=None, description="How all agents come to run together, while they do not."
    )
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
    score: Text | None = Field(
        default=None,
        description="Of the model that the job would end with now, such as balanced_accuracy=0.9431.",
    )
    scores: ScoresStatus | None = Field(
        default=None, description="What the latest scores are of, where silos score the model."
    )
    classes: tuple[ClassStatus, ...] = Field(
        default=(), max_length=50, description="The latest figures of each class, of at most 50 classes."
    )
    findings: tuple[DataFinding, ...] = Field(
        default=(),
        max_length=100,
        description="What the silos say of their data, where spec.data.check asks for that; the gravest first.",
    )
    best: BestStatus | None = Field(
        default=None, description="The best model so far, where the job ends with that."
    )
    training: dict[str, Number] = Field(
        default_factory=dict, max_length=100, description="Latest training figures, averaged over the silos."
    )
    curve: tuple[CurvePoint, ...] = Field(
        default=(), max_length=100, description="Learning curves: completed rounds, of many only some."
    )
    outputs: tuple[OutputStatus, ...] = Field(
        default=(), max_length=8, description="What became of the outputs that spec.output asks for."
    )
    parameters: Integer | None = Field(
        default=None, ge=0, description="Number of parameters of the job's model."
    )
    refused: dict[str, Integer] = Field(
        default_factory=dict, max_length=100, description="Refused requests and updates by problem code."
    )
    model: ModelStatus | None = Field(default=None, description="The model, once the job is complete.")
    silos: tuple[SiloStatusEntry, ...] = Field(
        default=(), max_length=MAX_SILOS, description="The silos, by name."
    )

    def document(self, exclude: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The status as JSON has it, without fields that are not known.

        What a method reports has no bounds, so that a status need not be one that an API server would take.

        :param exclude: fields to leave out, as pydantic takes them.
        """
        left_out = None if exclude is None else dict(exclude)
        return self.model_dump(
            mode="json", by_alias=True, exclude_none=True, exclude=left_out, warnings=False
        )


def condition_of(
    name: ConditionType, status: Literal["True", "False"], reason: str, message: str, since: str | None = None
) -> Condition:
    """A condition whose message may be of any length.

    :param since: RFC 3339 time at which its status changed; now, if none is given.
    """
    return Condition.model_construct(
        type=name,
        status=status,
        reason=reason,
        message=message,
        last_transition_time=since or timestamp(datetime.now(UTC)),
    )
