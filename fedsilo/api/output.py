"""The `output` section of a FederatedJob: what it leaves beside its model."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field, StringConstraints

from fedsilo.api.common import Fields, Flag, SecretName, check_server
from fedsilo.api.patterns import EXPERIMENT, REGISTERED_MODEL, TRACKING_URL

TrackingUrl = Annotated[
    str, StringConstraints(pattern=TRACKING_URL, max_length=2048), AfterValidator(check_server)
]

ExperimentName = Annotated[str, StringConstraints(pattern=EXPERIMENT, max_length=250)]

RegisteredModelName = Annotated[str, StringConstraints(pattern=REGISTERED_MODEL, max_length=250)]


class MlflowSpec(Fields):
    """An MLflow server that is told of the job, its rounds and its model."""

    tracking_uri: TrackingUrl = Field(description="Address of the server, without credentials.")
    experiment: ExperimentName | None = Field(
        default=None, description="Experiment that the run belongs to; the job's name when null."
    )
    registered_model: RegisteredModelName | None = Field(
        default=None, description="Registered model that gets a new version; none when null."
    )
    credentials_secret: SecretName | None = Field(
        default=None,
        description="Secret in the job's namespace with MLFLOW_TRACKING_TOKEN, or MLFLOW_TRACKING_USERNAME and "
        "MLFLOW_TRACKING_PASSWORD; for a cluster only.",
    )


class OutputSpec(Fields):
    """What the job leaves beside its model."""

    tensorboard: Flag = Field(
        default=False, description="Learning curves as a file for TensorBoard, curves.tfevents."
    )
    mlflow: MlflowSpec | None = Field(
        default=None, description="An MLflow server that is told of the job; none when null."
    )
