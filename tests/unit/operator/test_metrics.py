"""Metrics that the operator serves: those of jobs follow the objects, and go with them."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random

from fedsilo.api.observed import Object
from fedsilo.metrics import Exposition
from fedsilo_operator.cluster.interface import CallRefused, ClusterError, ClusterUnavailable
from fedsilo_operator.cluster.requests import RequestTotals
from fedsilo_operator.job import metrics as jobs
from fedsilo_operator.job.controller import JobController
from fedsilo_operator.metrics import exposition
from fedsilo_operator.objects import FEDERATED_JOB, Kind, Ref
from fedsilo_operator.runtime.controller import Reconciler
from fedsilo_operator.runtime.election import Election
from fedsilo_operator.runtime.operator import Operator
from fedsilo_operator.runtime.store import Store, WriteThroughCluster
from fedsilo_operator.silo import metrics as silos
from fedsilo_operator.silo.controller import SiloController
from tests.metrics_page import documented_metrics
from tests.operator_fakes.cluster import FakeCluster
from tests.operator_fakes.virtual import run
from tests.scraping import Scrape
from tests.unit.operator.job.objects import JOB_REF, NORTH, SETTINGS, SOUTH, manifest, signing_secret, silo
from tests.unit.operator.world import World

LABELS = {"job_namespace": JOB_REF.namespace, "job_name": JOB_REF.name}
LEASE = Ref("fedsilo-system", "lease")


@dataclass
class Operating:
    """Operators over one cluster; the first to be started leads."""

    cluster: FakeCluster = field(default_factory=FakeCluster)
    tasks: list[asyncio.Future[object]] = field(default_factory=list)

    def start(self, name: str = "one") -> Exposition:
        store = Store()
        cluster = WriteThroughCluster(self.cluster, store)
        controllers: list[Reconciler] = [
            JobController(cluster, store, SETTINGS),
            SiloController(cluster, store, SETTINGS),
        ]
        operator = Operator(cluster, store, controllers, Election(self.cluster, LEASE, name))
        self.tasks.append(asyncio.ensure_future(operator.run()))
        return exposition("operator", operator, store, RequestTotals())

    async def stop(self) -> None:
        for task in self.tasks:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


def begin(cluster: FakeCluster) -> World:
    cluster.put(manifest())
    for ref in (NORTH, SOUTH):
        cluster.put(silo(ref))
        cluster.put(signing_secret(ref))
    return World(cluster, Random(1))


def scraped_metrics(asked: Exposition) -> Scrape:
    return Scrape(asked.text().decode())


def test_a_job_has_series_from_its_beginning_to_its_end() -> None:
    async def main() -> None:
        operating = Operating()
        asked = operating.start()
        world = begin(operating.cluster)
        await asyncio.sleep(5)
        found = scraped_metrics(asked)
        assert found.declared == documented_metrics()["operator"]
        assert found.value("fedsilo_leader") == found.value("fedsilo_lease_transitions_total") == 1
        assert found.values("fedsilo_jobs")["Starting",] == 1
        assert found.values("fedsilo_job_state", **LABELS) == {("Starting",): 1}
        ((method, model, _),) = found.values("fedsilo_job_info", **LABELS)
        assert (method, model) == ("fedavg", "mlp")
        phases = found.values("fedsilo_job_silo_phase", **LABELS)
        assert phases == {("Starting", "north"): 1, ("Starting", "south"): 1}
        for controller in ("job", "silo"):
            reconciled = found.value("fedsilo_reconcile_total", controller=controller, result="success")
            assert reconciled > 0
            took = found.value("fedsilo_reconcile_duration_seconds_count", controller=controller)
            assert took == reconciled
            assert found.value("workqueue_adds_total", name=controller) >= reconciled
            assert found.value("workqueue_depth", name=controller) == 0

        for _ in range(60):
            world.step()
            await asyncio.sleep(2)
        found = scraped_metrics(asked)
        assert found.values("fedsilo_job_state", **LABELS) == {("Complete",): 1}
        assert found.values("fedsilo_jobs")["Complete",] == 1
        assert found.value("fedsilo_job_round") == 3

        operating.cluster.remove(FEDERATED_JOB, JOB_REF)
        await asyncio.sleep(30)
        found = scraped_metrics(asked)
        assert not {label for label, _ in found.labels} & {"job_name", "job_namespace"}
        assert sum(found.values("fedsilo_jobs").values()) == 0
        assert found.declared == documented_metrics()["operator"]
        await operating.stop()

    run(main())


def test_who_stands_by_says_nothing_of_jobs() -> None:
    async def main() -> None:
        operating = Operating()
        leads = operating.start("one")
        begin(operating.cluster)
        await asyncio.sleep(5)
        stands_by = operating.start("two")
        await asyncio.sleep(5)
        assert scraped_metrics(leads).value("fedsilo_leader") == 1
        found = scraped_metrics(stands_by)
        assert found.value("fedsilo_leader") == 0
        assert found.value("fedsilo_lease_transitions_total") == 1
        assert found.values("fedsilo_jobs") == found.values("fedsilo_job_state") == {}
        await operating.stop()

    run(main())


def test_failures_are_counted() -> None:
    errors: dict[tuple[str, str], ClusterError] = {
        ("apply", "Service"): CallRefused("403"),
        ("get", "Secret"): ClusterUnavailable("500"),
    }

    async def main() -> None:
        def fault(verb: str, kind: Kind) -> ClusterError | None:
            return errors.get((verb, kind.name))

        operating = Operating(FakeCluster(faults=fault))
        asked = operating.start()
        begin(operating.cluster)
        await asyncio.sleep(5)
        found = scraped_metrics(asked)
        assert found.value("fedsilo_reconcile_total", controller="job", result="refused") > 0
        assert found.value("fedsilo_reconcile_total", controller="silo", result="retry") > 0
        assert found.value("workqueue_retries_total", name="silo") > 0
        assert set(found.values("fedsilo_watch_restarts_total").values()) == {0}
        operating.cluster.compact()
        operating.cluster.cut_watches()
        operating.cluster.put(silo(NORTH, labels={"a": "b"}))
        await asyncio.sleep(60)
        assert sum(scraped_metrics(asked).values("fedsilo_watch_restarts_total").values()) > 0
        await operating.stop()

    run(main())


def test_what_an_aggregator_reports_is_reported_and_nonsense_left_out() -> None:
    def scraped_job(status: dict[str, object]) -> Scrape:
        job: Object = manifest() | {"status": status}
        job["metadata"] |= {"uid": "u"}
        return scraped_metrics(Exposition("operator", jobs.DECLARED_SERIES, lambda: jobs.read([job])))

    found = scraped_job(
        {
            "phase": "Running",
            "round": 3,
            "rounds": 7,
            "roundStartTime": "2026-03-01T12:00:00Z",
            "roundDeadline": "2026-03-01T12:10:00Z",
            "metrics": {"accuracy": 0.75},
            "training": {"loss": 1.5},
            "silos": [{"name": "north", "phase": "Running"}, {"name": "south", "state": "Awaited"}],
        }
    )
    assert (found.value("fedsilo_job_round"), found.value("fedsilo_job_rounds")) == (3, 7)
    begun = found.value("fedsilo_job_round_start_timestamp_seconds")
    assert found.value("fedsilo_job_round_deadline_timestamp_seconds") - begun == 600
    assert found.values("fedsilo_job_score", **LABELS) == {("accuracy",): 0.75}
    assert found.values("fedsilo_job_training", **LABELS) == {("loss",): 1.5}
    assert found.values("fedsilo_job_silo_phase", **LABELS) == {("Running", "north"): 1}

    found = scraped_job({"roundStartTime": "soon", "roundDeadline": None, "metrics": None})
    assert found.values("fedsilo_job_state", **LABELS) == {("Pending",): 1}
    assert found.values("fedsilo_job_round_start_timestamp_seconds") == {}


def test_budgets_of_silos_have_series_and_what_cannot_be_read_has_none() -> None:
    budget = {"dataset": "scans", "epsilon": 8.0, "delta": 1e-5, "spent": 2.0, "reserved": 1.0, "left": 5.0}
    statuses = ((NORTH, budget), (SOUTH, {"dataset": "scans", "epsilon": "much"}))
    found = [silo(ref) | {"status": {"privacyBudget": [one]}} for ref, one in statuses]
    told = scraped_metrics(Exposition("operator", silos.DECLARED_SERIES, lambda: silos.read(found)))
    labels = {"silo_namespace": NORTH.namespace, "silo": NORTH.name}
    assert told.values("fedsilo_privacy_epsilon_left", **labels) == {("scans",): 5.0}
    assert told.values("fedsilo_privacy_epsilon_budget", **labels) == {("scans",): 8.0}
    assert not told.values("fedsilo_privacy_epsilon_left", silo=SOUTH.name)
