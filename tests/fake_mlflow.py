"""An MLflow server on loopback, as much of its REST interface as a job uses, with what it was sent.

Written from the interface that `mlflow.store.tracking.rest_store` speaks; the client in the tests is the real one.
"""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from typing_extensions import override

PREFIX = "/api/2.0/mlflow/"
ARTEFACTS = "/api/2.0/mlflow-artifacts/artifacts/"

BEGIN = 1_700_000_000_000
"""Time at which every run begins, in milliseconds."""


@dataclass
class FakeMlflow:
    """What the server holds.

    :ivar refusing: requests that are answered by an error of the server before any is answered properly.
    :ivar authorisations: what requests had in the header of this name.
    """

    refusing: int = 0
    url: str = ""
    experiments: list[str] = field(default_factory=list)
    runs: list[dict[str, Any]] = field(default_factory=list)
    metrics: list[tuple[str, int, float, int]] = field(default_factory=list)
    artefacts: dict[str, bytes] = field(default_factory=dict)
    models: list[str] = field(default_factory=list)
    versions: list[dict[str, Any]] = field(default_factory=list)
    authorisations: set[str | None] = field(default_factory=set)

    @property
    def run(self) -> str:
        """Id of the only run."""
        (run,) = self.runs
        return str(run["info"]["run_id"])

    @property
    def tags(self) -> dict[str, str]:
        """Tags of the only run."""
        (run,) = self.runs
        return {tag["key"]: tag["value"] for tag in run["data"]["tags"]}

    @property
    def params(self) -> dict[str, str]:
        """Parameters of the only run."""
        (run,) = self.runs
        return {param["key"]: param["value"] for param in run["data"]["params"]}

    def points(self, name: str) -> list[tuple[int, float]]:
        """Step and value of each point of a metric."""
        return [(step, value) for key, step, value, _ in self.metrics if key == name]

    def answer(self, call: str, given: dict[str, Any]) -> dict[str, Any] | None:
        """The answer to a call; None where there is no such thing."""
        return {
            "experiments/get-by-name": self._experiment,
            "experiments/create": self._create_experiment,
            "runs/search": self._search_runs,
            "runs/create": self._create_run,
            "runs/get": lambda _: {"run": self.runs[0]},
            "runs/update": self._update_run,
            "runs/log-batch": self._log_batch,
            "runs/set-tag": self._set_tag,
            "metrics/get-history": self._metric_history,
            "registered-models/search": self._search_models,
            "registered-models/create": self._create_model,
            "model-versions/search": lambda _: {"model_versions": self.versions},
            "model-versions/create": self._create_version,
        }[call](given)

    def _experiment(self, given: dict[str, Any]) -> dict[str, Any] | None:
        name = given["experiment_name"]
        if name not in self.experiments:
            return None
        found = {"experiment_id": str(self.experiments.index(name)), "name": name}
        return {"experiment": found | {"lifecycle_stage": "active"}}

    def _create_experiment(self, given: dict[str, Any]) -> dict[str, Any]:
        self.experiments.append(given["name"])
        return {"experiment_id": str(len(self.experiments) - 1)}

    def _search_runs(self, given: dict[str, Any]) -> dict[str, Any]:
        wanted = given["filter"].rpartition("= ")[2].strip("'")
        return {
            "runs": [
                run
                for run in self.runs
                if any(tag == {"key": "fedsilo.jobUid", "value": wanted} for tag in run["data"]["tags"])
            ]
        }

    def _create_run(self, given: dict[str, Any]) -> dict[str, Any]:
        name = uuid.uuid4().hex  # the client remembers where the artefacts of a run go
        info = {
            "run_id": name,
            "run_uuid": name,
            "experiment_id": given["experiment_id"],
            "status": "RUNNING",
            "start_time": BEGIN,
            "artifact_uri": f"mlflow-artifacts:/{name}/artifacts",
            "lifecycle_stage": "active",
        }
        self.runs.append({"info": info, "data": {"tags": list(given["tags"]), "params": []}})
        return {"run": self.runs[-1]}

    def _update_run(self, given: dict[str, Any]) -> dict[str, Any]:
        info = next(run["info"] for run in self.runs if run["info"]["run_id"] == given["run_id"])
        info["status"] = given["status"]
        return {"run_info": info}

    def _log_batch(self, given: dict[str, Any]) -> dict[str, Any]:
        data = self.runs[0]["data"]
        data["params"] += [param for param in given.get("params", []) if param not in data["params"]]
        for metric in given.get("metrics", []):
            # As the server's tables do: the same point twice is one.
            point = metric["key"], int(metric["step"]), metric["value"], int(metric["timestamp"])
            if point not in self.metrics:
                self.metrics.append(point)
        return {}

    def _set_tag(self, given: dict[str, Any]) -> dict[str, Any]:
        tags = self.runs[0]["data"]["tags"]
        tags[:] = [tag for tag in tags if tag["key"] != given["key"]]
        tags.append({"key": given["key"], "value": given["value"]})
        return {}

    def _metric_history(self, given: dict[str, Any]) -> dict[str, Any]:
        found = [point for point in self.metrics if point[0] == given["metric_key"]]
        fields = ("key", "step", "value", "timestamp")
        return {"metrics": [dict(zip(fields, point, strict=True)) for point in found]}

    def _search_models(self, given: dict[str, Any]) -> dict[str, Any]:
        return {
            "registered_models": [{"name": name} for name in self.models if f"'{name}'" in given["filter"]]
        }

    def _create_model(self, given: dict[str, Any]) -> dict[str, Any]:
        self.models.append(given["name"])
        return {"registered_model": {"name": given["name"]}}

    def _create_version(self, given: dict[str, Any]) -> dict[str, Any]:
        self.versions.append(given | {"version": str(len(self.versions) + 1), "status": "READY"})
        return {"model_version": self.versions[-1]}


@contextmanager
def serving(server: FakeMlflow) -> Iterator[FakeMlflow]:
    """The server, reachable until the end of the block."""

    class Handler(BaseHTTPRequestHandler):
        def _serve(self) -> None:
            content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            url = urlsplit(self.path)
            server.authorisations.add(self.headers.get("Authorization"))
            if server.refusing:
                server.refusing -= 1
                self._reply(503, {"error_code": "TEMPORARILY_UNAVAILABLE", "message": "starting"})
            elif url.path.startswith(ARTEFACTS):
                server.artefacts[url.path.removeprefix(ARTEFACTS)] = content
                self._reply(200, {})
            else:
                given = json.loads(content) if content else dict(parse_qsl(url.query))
                found = server.answer(url.path.removeprefix(PREFIX), given)
                missing = {"error_code": "RESOURCE_DOES_NOT_EXIST", "message": "there is none"}
                self._reply(404 if found is None else 200, missing if found is None else found)

        do_GET = do_POST = do_PUT = do_PATCH = _serve  # noqa: N815 (the base class's names)

        def _reply(self, status: int, answer: dict[str, Any]) -> None:
            content = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        @override
        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        server.url = f"http://127.0.0.1:{http.server_address[1]}"
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            http.shutdown()
            thread.join()
