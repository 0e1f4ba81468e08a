"""A job's run on an MLflow server, written by MLflow's own client."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedsilo.api.job import FederatedJobSpec
from fedsilo.engine import mlflow_run
from fedsilo.engine.mlflow_run import MlflowRun, figures, flattened_leaves
from fedsilo.engine.round_engine import RoundEngine
from fedsilo.errors import ManifestInvalid
from tests.fake_mlflow import BEGIN, FakeMlflow, serving
from tests.federate import federate, job_spec
from tests.unit.engine.synthetic import synthetic_runners


@pytest.fixture(scope="module")
def finished_job(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, RoundEngine]:
    """A complete job of three rounds, and where it was run."""
    root = tmp_path_factory.mktemp("finished")
    spec = job_spec("fedavg", 2, rounds=3)
    return root / "aggregator", federate(root, spec, synthetic_runners(spec))


def run_of(server: FakeMlflow, finished: tuple[Path, RoundEngine], **fields: Any) -> MlflowRun:
    directory, engine = finished
    spec = job_spec("fedavg", 2, rounds=3, output={"mlflow": {"trackingUri": server.url, **fields}})
    assert spec.mlflow is not None
    return MlflowRun(spec.mlflow, spec, replace(engine.identity, name="digits"), directory)


def test_a_job_is_a_run_with_its_rounds_lineage_and_model(
    finished_job: tuple[Path, RoundEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "abc")
    directory, engine = finished_job
    history = engine.history()
    with serving(FakeMlflow()) as server:
        run = run_of(server, finished_job, registeredModel="digits-model")
        run.send(history[:1])
        assert server.points("training/loss") == [(1, 1.0)]
        run.send(history)
        run.finish(succeeded=True)
    assert server.experiments == ["digits"]
    assert server.points("training/loss") == [(1, 1.0), (2, 2.0), (3, 3.0)]
    assert server.points("evaluation/accuracy") == [(3, history[-1]["metrics"]["accuracy"])]
    assert server.params["training.rounds"] == "3"
    assert server.params["data.inputShape"] == "[6]"
    assert server.params["method.name"] == "fedavg"
    described = json.loads((directory / "model.json").read_text())
    assert server.tags["fedsilo.jobUid"] == engine.identity.uid
    assert server.tags["fedsilo.specDigest"] == engine.identity.spec_digest
    assert server.tags["fedsilo.silos"] == "silos/s0, silos/s1"
    assert server.tags["fedsilo.modelSha256"] == described["sha256"]
    sealed = (directory / "provenance.json").read_bytes()
    assert server.tags["fedsilo.provenanceSha256"] == hashlib.sha256(sealed).hexdigest()
    assert server.artefacts == {
        f"{server.run}/artifacts/model/{name}": (directory / name).read_bytes()
        for name in mlflow_run.ARTEFACTS
    }
    assert server.runs[0]["info"]["status"] == "FINISHED"
    (version,) = server.versions
    assert (version["name"], version["run_id"]) == ("digits-model", server.run)
    assert version["source"] == f"mlflow-artifacts:/{server.run}/artifacts/model"
    assert server.authorisations == {"Bearer abc"}


def test_a_job_that_goes_on_has_the_same_run_and_no_point_twice(
    finished_job: tuple[Path, RoundEngine],
) -> None:
    history = finished_job[1].history()
    with serving(FakeMlflow()) as server:
        run_of(server, finished_job).send(history[:2])
        again = run_of(server, finished_job, registeredModel="digits")
        for _ in range(2):  # what is repeated after the end changes nothing either
            again.send(history)
            again.finish(succeeded=True)
            again = run_of(server, finished_job, registeredModel="digits")
    assert [len(found) for found in (server.experiments, server.runs, server.models, server.versions)] == [
        1
    ] * 4
    assert server.points("training/loss") == [(1, 1.0), (2, 2.0), (3, 3.0)]


def test_a_round_whose_answer_was_lost_is_the_same_points_again(
    finished_job: tuple[Path, RoundEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    history = [line | {"seconds": 1.5} for line in finished_job[1].history()]
    with serving(FakeMlflow()) as server:
        run_of(server, finished_job).send(history[:1])
        server.metrics = [point for point in server.metrics if point[0] != mlflow_run.LAST_METRIC]
        run_of(server, finished_job).send(history)
    assert server.points("training/loss") == [(1, 1.0), (2, 2.0), (3, 3.0)]
    assert [time - BEGIN for key, _, _, time in server.metrics if key == mlflow_run.LAST_METRIC] == [
        1500,
        3000,
        4500,
    ]


def test_a_server_in_trouble_is_an_error_that_may_be_tried_again(
    finished_job: tuple[Path, RoundEngine],
) -> None:
    history = finished_job[1].history()
    with serving(FakeMlflow(refusing=1)) as server:
        run = run_of(server, finished_job)
        with pytest.raises(Exception, match="503"):
            run.send(history)
        run.send(history)
        run.finish(succeeded=False)
    assert len(server.points("training/loss")) == 3
    assert (server.runs[0]["info"]["status"], server.artefacts) == ("FAILED", {})


def test_nothing_of_a_single_silo_is_sent() -> None:
    line = {
        "round": 1,
        "seconds": 2.0,
        "metrics": {"accuracy": 0.5, "odd (name)": 1.0, "loss": float("nan")},
        "perClass": {"recall": [1.0, None]},
        "training": {"loss": 0.25},
        "silos": {"silos/s0": {"loss": 7.0}},
        "samples": {"silos/s0": 42},
        "bytes": {"silos/s0": 9},
    }
    assert figures(line) == {
        "evaluation/accuracy": 0.5,
        "evaluation/odd _name_": 1.0,
        "training/loss": 0.25,
        "evaluation/recall/0": 1.0,
        "round/seconds": 2.0,
    }
    assert list(figures(line))[-1] == mlflow_run.LAST_METRIC


def test_a_document_s_leaves_have_dotted_names() -> None:
    document = {"a": {"b": 1, "c": {}}, "d": ["x", 2], "e": "text", "f": True}
    assert dict(flattened_leaves(document)) == {"a.b": "1", "d": '["x", 2]', "e": "text", "f": "true"}


def test_the_client_must_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow_run.require_client()
    monkeypatch.setattr(mlflow_run, "find_spec", lambda _: None)
    with pytest.raises(ManifestInvalid, match=r"pip install 'fedsilo\[mlflow\]'"):
        mlflow_run.require_client()


def test_jobs_without_a_server_have_their_old_digest() -> None:
    from fedsilo.api.digest import frozen_spec

    spec = job_spec("fedavg", 2, output={"tensorboard": True})
    assert frozen_spec(spec)["output"] == {"tensorboard": True}


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"trackingUri": "https://me:secret@mlflow.example"}, "trackingUri"),
        ({"trackingUri": "sqlite:///mlflow.db"}, "trackingUri"),
        ({"trackingUri": "http://:80"}, "trackingUri"),
        ({"trackingUri": "http://mlflow.example", "registeredModel": "a'b"}, "registeredModel"),
        ({"trackingUri": "http://mlflow.example", "credentialsSecret": "A_B"}, "credentialsSecret"),
        ({}, "trackingUri"),
    ],
)
def test_a_server_that_is_none_is_refused(fields: dict[str, str], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        FederatedJobSpec.model_validate(
            job_spec("fedavg", 1).model_dump(by_alias=True) | {"output": {"mlflow": fields}}
        )
