"""A job as a run of an MLflow server: parameters, metrics by round, lineage, the model.

The server is the only memory: a run is found by the job's uid, and its last round by its metrics, so that a job goes on
in the same run wherever it is continued. Times of metrics follow from the run's begin and the history, so that a round
that is sent twice, because an answer was lost, is the same points again.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedsilo.api.digest import frozen_spec
from fedsilo.api.figures import finite_figures
from fedsilo.api.job import FederatedJobSpec
from fedsilo.api.output import MlflowSpec
from fedsilo.engine.model_card import FILE as CARD
from fedsilo.engine.provenance import FILE as PROVENANCE
from fedsilo.engine.record import Record
from fedsilo.engine.store import JobIdentity
from fedsilo.errors import ManifestInvalid

if TYPE_CHECKING:
    from mlflow.tracking import MlflowClient

FOLDER = "model"
"""Where the run's artefacts lie."""

ARTEFACTS = ("model.safetensors", "model.json", CARD, PROVENANCE)

JOB_UID = "fedsilo.jobUid"
"""Tag by which the run is found again."""

LAST_METRIC = "round/seconds"
"""Metric that every round has, and that is sent last of a round's."""

MAX_VALUE_CHARACTERS = 6000
"""Characters of a parameter or a tag, as the server allows them."""

MAX_NAME_CHARACTERS = 250
"""Characters of a metric's or a parameter's name, as the server allows them."""

MAX_PARAMETERS, MAX_METRICS = 100, 1000
"""Parameters and metrics of one request, as the server allows them."""

_UNFIT_CHARACTERS = re.compile(r"[^\w\-./: ]", re.ASCII)
"""What the name of a metric or parameter must not have."""

_SETTINGS = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "30",
}
"""Variables of the client library, unless they are set: it retries for minutes otherwise, and reports to its makers."""


def require_client() -> None:
    """Check that the client library is there.

    :raises ManifestInvalid: naming the extra that brings it.
    """
    if find_spec("mlflow") is None:
        raise ManifestInvalid(
            "spec.output.mlflow: needs the package mlflow, which is not installed; pip install 'fedsilo[mlflow]', or "
            "remove the field"
        )


class MlflowRun:
    """The run of one job; each call may fail, and may be repeated.

    :param directory: where the job's result will be.
    """

    def __init__(
        self, target: MlflowSpec, spec: FederatedJobSpec, identity: JobIdentity, directory: Path
    ) -> None:
        self._target = target
        self._spec = spec
        self._identity = identity
        self._directory = directory
        self._client: MlflowClient | None = None
        self._run = ""
        self._begin = 0
        self._artefacts = ""
        self._sent = 0

    def send(self, history: Sequence[Record]) -> None:
        """Have all rounds of the history in the run; the first call makes or finds it."""
        client = self._open_client()
        seconds = 0.0
        for line in history:
            seconds += line["seconds"]
            if line["round"] > self._sent:
                self._send_round(client, line, self._begin + round(1000 * seconds))
                self._sent = line["round"]

    def finish(self, succeeded: bool) -> None:
        """End the MLflow run; where there is a model, add its files, and register it if the job asks for that."""
        client = self._open_client()
        if succeeded:
            for name in ARTEFACTS:
                if (self._directory / name).is_file():
                    client.log_artifact(self._run, str(self._directory / name), FOLDER)
            digests = self._digests()
            for key, value in digests.items():
                client.set_tag(self._run, key, value)
            if self._target.registered_model is not None:
                self._register(client, self._target.registered_model, digests)
        client.set_terminated(self._run, "FINISHED" if succeeded else "FAILED")

    def _open_client(self) -> MlflowClient:
        if self._client is None:
            client = _client(self._target.tracking_uri)
            experiment = self._experiment(client)
            found = client.search_runs(
                [experiment], f"tags.`{JOB_UID}` = '{self._identity.uid}'", max_results=1
            )
            if found:
                run = found[0]
                client.update_run(run.info.run_id, status="RUNNING")
            else:
                run = client.create_run(experiment, tags=self._tags(), run_name=self._identity.name)
            self._run, self._begin = run.info.run_id, run.info.start_time
            self._artefacts = run.info.artifact_uri
            points = client.get_metric_history(self._run, LAST_METRIC) if found else []
            self._sent = max((point.step for point in points), default=0)
            self._send_parameters(client)
            self._client = client
        return self._client

    def _experiment(self, client: MlflowClient) -> str:
        name = self._target.experiment or self._identity.name
        found = client.get_experiment_by_name(name)
        return str(client.create_experiment(name) if found is None else found.experiment_id)

    def _tags(self) -> dict[str, str]:
        """The run's lineage as far as it is known from the beginning."""
        return {
            JOB_UID: self._identity.uid,
            "fedsilo.job": self._identity.name,
            "fedsilo.specDigest": self._identity.spec_digest,
            "fedsilo.method": self._spec.method.name,
            "fedsilo.silos": ", ".join(self._identity.silos)[:MAX_VALUE_CHARACTERS],
        }

    def _digests(self) -> dict[str, str]:
        """The rest of it: the digests of the model and of what it was made from."""
        tags = {"fedsilo.modelSha256": json.loads((self._directory / "model.json").read_bytes())["sha256"]}
        sealed = self._directory / PROVENANCE
        if sealed.is_file():
            tags["fedsilo.provenanceSha256"] = hashlib.sha256(sealed.read_bytes()).hexdigest()
        return tags

    def _send_parameters(self, client: MlflowClient) -> None:
        from mlflow.entities import Param

        named = {
            _fit(key): value[:MAX_VALUE_CHARACTERS]
            for key, value in flattened_leaves(frozen_spec(self._spec))
        }
        parameters = [Param(key, value) for key, value in named.items()]
        for first in range(0, len(parameters), MAX_PARAMETERS):
            client.log_batch(self._run, params=parameters[first : first + MAX_PARAMETERS])

    def _send_round(self, client: MlflowClient, line: Record, milliseconds: int) -> None:
        from mlflow.entities import Metric

        metrics = [Metric(key, value, milliseconds, line["round"]) for key, value in figures(line).items()]
        for first in range(0, len(metrics), MAX_METRICS):
            client.log_batch(self._run, metrics=metrics[first : first + MAX_METRICS])

    def _register(self, client: MlflowClient, name: str, digests: Mapping[str, str]) -> None:
        """A version of the registered model, unless there is one of this run."""
        if not client.search_registered_models(f"name = '{name}'", max_results=1):
            client.create_registered_model(name)
        if not client.search_model_versions(f"run_id = '{self._run}'", max_results=1):
            client.create_model_version(
                name,
                source=f"{self._artefacts}/{FOLDER}",
                run_id=self._run,
                tags={**self._tags(), **digests},
                await_creation_for=0,
            )


def figures(line: Record) -> dict[str, float]:
    """The metrics of a round, the job's own and none of a single silo; the last tells that it is whole."""
    found = {f"evaluation/{name}": value for name, value in line.get("metrics", {}).items()}
    found |= {f"training/{name}": value for name, value in line["training"].items()}
    found |= {f"{name}/{label}": value for name, label, value in _by_class(line)}
    return {_fit(name): value for name, value in finite_figures(found).items()} | {
        LAST_METRIC: line["seconds"]
    }


def _fit(name: str) -> str:
    return _UNFIT_CHARACTERS.sub("_", name)[:MAX_NAME_CHARACTERS]


def _by_class(line: Record) -> Iterator[tuple[str, int, float]]:
    for name, values in line.get("perClass", {}).items():
        for label, value in enumerate(values):
            if value is not None:
                yield f"evaluation/{name}", label, value


def flattened_leaves(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """The leaves of a document with their dotted names; a list is one leaf."""
    if isinstance(value, dict) and value:
        for key, part in value.items():
            yield from flattened_leaves(part, f"{name}.{key}" if name else key)
    elif name and value != {}:
        yield name, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _client(address: str) -> MlflowClient:
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)
    from mlflow.tracking import MlflowClient

    return MlflowClient(tracking_uri=address, registry_uri=address)
