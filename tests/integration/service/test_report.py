"""An aggregator that reports into its job's status, over an API server that is there, away, or has no such job."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fedsilo.api.status import FederatedJobStatus
from tests.integration.service.api import Api
from tests.integration.service.client import SiloClient, finish_job
from tests.integration.service.site import Process, Site, federation, wait_until

REPORT = ("--report", "--claim", "attacked-12345678")


class ReportedJob:
    """A job of one round whose aggregator reports to an API server of the test's."""

    def __init__(self, root: Path) -> None:
        self.site = Site(root / "site", federation(rounds=1))
        self.api = Api(root / "kubeconfig", "federation/attacked", self.site.uid)
        self.running: list[Process] = []

    def aggregator(self) -> Process:
        self.running.append(self.site.aggregator(more=REPORT))
        return self.running[-1]

    def restart_aggregator(self) -> Process:
        """An aggregator of which nothing more is asked: it may end before it is seen to listen."""
        self.running.append(self.site.start_aggregator(more=REPORT))
        return self.running[-1]

    def clients(self) -> list[SiloClient]:
        return [SiloClient(self.site, silo) for silo in self.site.silos]


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ReportedJob]:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    found = ReportedJob(tmp_path)
    with found.api:
        yield found
        for process in found.running:
            process.kill()


def test_the_status_follows_the_job_to_its_model(job: ReportedJob) -> None:
    aggregator = job.aggregator()
    first = wait_until(lambda: job.api.writes, "the first report")[0]
    assert (first["progress"], first["siloProgress"], first["step"]) == ("0/1", "0/2", "train")
    assert first["roundStartTime"] < first["roundDeadline"]
    assert finish_job(*job.clients()) == [True, True]
    assert aggregator.exit_code() == 0
    last = job.api.writes[-1]
    assert (last["progress"], last["siloProgress"], last["training"]) == ("1/1", "2/2", {"loss": 0.5})
    assert last["model"] == {"claim": REPORT[2], **job.site.status()["model"]}
    assert [(silo["name"], silo["state"]) for silo in last["silos"]] == [
        ("north", "Finished"),
        ("south", "Finished"),
    ]
    for status in job.api.writes:
        FederatedJobStatus.model_validate(status)
    [path] = {path for path, _ in job.api.requests}
    assert path == "/apis/fedsilo.io/v1alpha1/namespaces/federation/federatedjobs/attacked/status"
    for _, query in job.api.requests:
        assert query["fieldManager"] == ["fedsilo-aggregator"]
        assert "force" not in query

    job.api.writes.clear()
    restarted = job.aggregator()
    assert finish_job(*job.clients()) == [True, True]
    assert restarted.exit_code() == 0, "a job that has its model says so again, and ends"
    assert job.api.writes == [last]


@pytest.mark.thorough
def test_an_api_server_that_is_away_stops_no_training_and_hears_the_end(job: ReportedJob) -> None:
    job.api.down = True
    aggregator = job.aggregator()
    assert finish_job(*job.clients()) == [True, True]
    wait_until(
        lambda: "could not be written: OSError: 503 the server is starting" in job.site.log(), "the warning"
    )
    assert aggregator.running
    assert job.api.writes == []
    job.api.down = False
    assert aggregator.exit_code() == 0
    assert "model" in job.api.writes[-1]


@pytest.mark.thorough
@pytest.mark.parametrize("uid", [None, "another"])
def test_nothing_is_written_to_a_job_that_is_gone_or_another_by_now(
    job: ReportedJob, uid: str | None
) -> None:
    aggregator = job.aggregator()
    wait_until(lambda: job.api.writes, "the first report")
    job.api.uid = uid
    job.api.writes.clear()
    assert finish_job(*job.clients()) == [True, True]
    assert aggregator.exit_code() == 0
    assert job.api.writes == []
    assert "is not written any more" in job.site.log()


@pytest.mark.thorough
def test_a_job_that_failed_fails_of_the_same_again(job: ReportedJob) -> None:
    """Killed after the failure and before its end, an aggregator comes to the same end."""
    aggregator = job.aggregator()
    wait_until(lambda: job.api.writes, "the first report")
    job.api.down = True
    north = job.clients()[0]
    report = b'{"reason": "DataInvalid", "message": "no file scans"}'
    assert north.fail(north.task().task, report).status == 204
    wait_until(lambda: job.site.status()["phase"] == "Failed", "the failure")
    assert aggregator.running, "the last report is not there yet"
    aggregator.kill()
    job.api.down = False
    assert job.restart_aggregator().exit_code() == 4
    assert job.site.status()["conditions"][0]["reason"] == "DataInvalid"
    assert [silo["state"] for silo in job.api.writes[-1]["silos"]] == ["Failed", "Awaited"]


def test_without_an_account_the_option_is_refused(
    job: ReportedJob, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("KUBECONFIG")
    for name in ("KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"):
        monkeypatch.delenv(name, raising=False)
    assert job.restart_aggregator().exit_code() == 2
    assert "--report: no Kubernetes account to report with" in job.site.log()
