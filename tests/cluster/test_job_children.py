"""The job controller over a real API server: what it applies is valid, settles, and goes when the job goes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from typing_extensions import override

from fedsilo.api.observed import Object, uid_of
from fedsilo.api.timestamps import timestamp
from fedsilo_operator.cluster.api_server import ApiServer, api_server
from fedsilo_operator.cluster.interface import ClusterError
from fedsilo_operator.job.controller import JobController
from fedsilo_operator.names import aggregator_name
from fedsilo_operator.objects import (
    CLAIM,
    FEDERATED_JOB,
    JOB,
    NETWORK_POLICY,
    POD,
    ROLE,
    ROLE_BINDING,
    SERVICE,
    SERVICE_ACCOUNT,
    SILO_AGENT,
    Kind,
    Ref,
    kind_of,
    ref_of,
)
from fedsilo_operator.runtime.operator import Operator
from fedsilo_operator.runtime.store import Store, WriteThroughCluster
from hack.cluster import apiserver
from tests.paths import ROOT
from tests.unit.operator.job.objects import JOB_REF, NORTH, SETTINGS, SOUTH, manifest, silo, word

AGGREGATOR = Ref(JOB_REF.namespace, aggregator_name(JOB_REF))
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
TESTER = "test"
GARBAGE_COLLECTION_SECONDS = (
    120.0  # the garbage collector learns of new kinds every 30 s, and then tries again with a backoff
)


@pytest.fixture(scope="module")
def kubeconfig() -> Iterator[Path]:
    with apiserver.api_server("job-children", controllers=True) as path:
        yield path


@pytest.fixture
async def cluster(kubeconfig: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ApiServer]:
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    async with api_server() as found:
        for name in ("federatedjobs", "silos", "siloagents"):
            crd = yaml.safe_load((ROOT / "manifests/crds" / f"{name}.yaml").read_text())
            await found._connection.call("POST", DEFINITIONS, body=crd)
        for name in (JOB_REF.namespace, NORTH.namespace, SOUTH.namespace):
            space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            await found._connection.call("POST", "/api/v1/namespaces", body=space)
        yield found


class Counting(WriteThroughCluster):
    """Counts what is written."""

    writes = 0

    @override
    async def apply(self, obj: Object, *, manager: str, status: bool = False) -> Object:
        self.writes += 1
        return await super().apply(obj, manager=manager, status=status)

    @override
    async def create(self, obj: Object) -> Object:
        self.writes += 1
        return await super().create(obj)


@pytest.fixture
async def operator(cluster: ApiServer) -> AsyncIterator[Counting]:
    store = Store()
    counting = Counting(cluster, store)
    running = asyncio.ensure_future(
        Operator(counting, store, [JobController(counting, store, SETTINGS)]).run()
    )
    yield counting
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running


async def test_from_apply_to_running_and_away(cluster: ApiServer, operator: Counting) -> None:
    await _wait_until(lambda: cluster.list(FEDERATED_JOB), "the definitions to be served")
    for ref in (NORTH, SOUTH):
        await cluster.apply(_bare_object(silo(ref)), manager=TESTER)
        await _say(cluster, silo(ref), silo(ref)["status"])
    await cluster.apply(manifest(suspend=False), manager=TESTER)

    agents = await _wait_until(lambda: _some(cluster, SILO_AGENT, 2), "two agents")
    for agent in agents:
        conditions = [_condition("Admitted"), _condition("Ready")]
        await _say(cluster, agent, {"conditions": conditions, **word(agent)})
    batch = await _wait_until(lambda: cluster.get(JOB, AGGREGATOR), "the aggregator's Job")
    assert batch["spec"]["template"]["spec"]["serviceAccountName"] == AGGREGATOR.name
    await _run_pod(cluster, batch)
    await _wait_until(lambda: _phase(cluster, "Running"), "the job to run")
    for kind in (SERVICE, SERVICE_ACCOUNT, ROLE, ROLE_BINDING, NETWORK_POLICY):
        await cluster.get(kind, AGGREGATOR)
    await _settles(operator)

    service = await cluster.get(SERVICE, AGGREGATOR)
    await cluster.delete(SERVICE, AGGREGATOR)
    again = await _wait_until(lambda: _other_object(cluster, service), "the Service to come back")
    assert again["spec"]["clusterIP"] == service["spec"]["clusterIP"]

    await cluster.apply(manifest(suspend=True), manager=TESTER)
    await _wait_until(lambda: _phase(cluster, "Suspended"), "the job to be suspended")
    assert (await cluster.get(JOB, AGGREGATOR))["spec"]["suspend"] is True
    await _settles(operator)

    await cluster.delete(FEDERATED_JOB, JOB_REF)
    for kind in (FEDERATED_JOB, SILO_AGENT, SERVICE, JOB, ROLE):
        await _wait_until(lambda kind=kind: _some(cluster, kind, 0), f"no {kind}", GARBAGE_COLLECTION_SECONDS)  # type: ignore[misc]
    assert (await cluster.list(CLAIM)).items, "the model stays"


async def _settles(operator: Counting) -> None:
    """Within a moment nothing is written any more."""
    await asyncio.sleep(1)
    before = operator.writes
    await asyncio.sleep(3)
    assert operator.writes == before


async def _wait_until(ask: Callable[[], Any], what: str, seconds: float = 30) -> Any:
    """What is asked for, as soon as it is there."""
    end = asyncio.get_running_loop().time() + seconds
    while asyncio.get_running_loop().time() < end:
        with suppress(ClusterError):
            if (found := await ask()) is not None:
                return found
        await asyncio.sleep(0.1)
    raise AssertionError(f"waited in vain for {what}")


async def _some(cluster: ApiServer, kind: Kind, count: int) -> tuple[Object, ...] | None:
    namespaces = {JOB_REF.namespace, NORTH.namespace, SOUTH.namespace}
    found = tuple(obj for obj in (await cluster.list(kind)).items if ref_of(obj).namespace in namespaces)
    return found if len(found) == count else None


async def _phase(cluster: ApiServer, phase: str) -> Object | None:
    job = await cluster.get(FEDERATED_JOB, JOB_REF)
    return job if job.get("status", {}).get("phase") == phase else None


async def _other_object(cluster: ApiServer, before: Object) -> Object | None:
    found = await cluster.get(kind_of(before), ref_of(before))
    return found if uid_of(found) != uid_of(before) else None


async def _say(cluster: ApiServer, obj: Object, status: Object) -> None:
    content = {"apiVersion": obj["apiVersion"], "kind": obj["kind"], "status": status}
    metadata = {name: obj["metadata"][name] for name in ("name", "namespace")}
    await cluster.apply(content | {"metadata": metadata}, manager=TESTER, status=True)


async def _run_pod(cluster: ApiServer, batch: Object) -> None:
    """What Job controller and kubelet would do."""
    template = batch["spec"]["template"]
    owner = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": AGGREGATOR.name,
        "uid": uid_of(batch),
        "controller": True,
    }
    labels = {key: value for key, value in template["metadata"]["labels"].items() if "batch" not in key}
    pod = {
        "apiVersion": POD.api,
        "kind": POD.name,
        "metadata": {
            "name": f"{AGGREGATOR.name}-x",
            "namespace": AGGREGATOR.namespace,
            "labels": labels,
            "ownerReferences": [owner],
        },
        "spec": template["spec"],
    }
    made = await _wait_until(lambda: cluster.create(pod), "the pod's service account")
    await _say(cluster, made, {"phase": "Running", "conditions": [_condition("Ready", short=True)]})


def _condition(name: str, short: bool = False) -> Object:
    moment = timestamp(datetime.now(UTC))
    content = {"type": name, "status": "True", "lastTransitionTime": moment}
    return content if short else content | {"reason": "Test", "message": f"{name}, says the test."}


def _bare_object(obj: Object) -> Object:
    return {name: value for name, value in obj.items() if name != "status"}
