"""`fedsilo run` of a job that names an MLflow server: one run on it, however often the job is continued."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.fake_mlflow import FakeMlflow, serving
from tests.integration.local.manifest import silos, write
from tests.integration.local.runs import end, start


@pytest.mark.thorough
def test_what_a_server_that_was_away_missed_is_sent_when_the_job_is_resumed(tmp_path: Path) -> None:
    login = {"MLFLOW_TRACKING_USERNAME": "me", "MLFLOW_TRACKING_PASSWORD": "open sesame"}
    workdir = tmp_path / "run"
    with serving(FakeMlflow(refusing=1_000)) as server:
        output = {"mlflow": {"trackingUri": server.url, "registeredModel": "digits"}}
        manifest = write(tmp_path / "job.yaml", silos("north"), output=output)
        first = end(start(manifest, workdir, cold=True, environment=login), workdir)
        assert first.code == 0, first.err
        assert "the MLflow run is not complete" in (workdir / "logs" / "aggregator.log").read_text()
        assert not server.runs
        server.refusing = 0
        again = end(start(manifest, workdir, "--resume", environment=login), workdir)
        assert again.code == 0, again.err
    assert server.points("round/seconds") == [(line["round"], line["seconds"]) for line in first.history]
    assert server.tags["fedsilo.modelSha256"] == first.document["model"]["sha256"]
    described = json.loads(server.artefacts[f"{server.run}/artifacts/model/model.json"])
    assert described["sha256"] == first.document["model"]["sha256"]
    assert [version["name"] for version in server.versions] == ["digits"]
    assert server.authorisations == {"Basic bWU6b3BlbiBzZXNhbWU="}
    for log in (workdir / "logs").iterdir():
        assert "open sesame" not in log.read_text()
