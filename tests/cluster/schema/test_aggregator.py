"""The aggregator's own client, with its own account, role and the policy in force."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from kubernetes.aio import client

from fedsilo.api.common import Metadata
from fedsilo.api.status import ModelStatus
from fedsilo_aggregator.apiserver import KubernetesJob, _configuration
from fedsilo_aggregator.report import JobGoneError, aggregator_fields
from fedsilo_operator.workloads import aggregator
from hack.cluster.kubectl import Kubectl
from tests.cluster.schema.federation import NAMESPACE, SILOS, job, operators, report
from tests.unit.aggregator.test_report import STATUS


@pytest.fixture(autouse=True)
def account(api: Kubectl, name: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The user name of the job's aggregator, which has the role that the operator gives it."""
    monkeypatch.setenv("KUBECONFIG", str(api.kubeconfig))
    owner = api.get("fj", name, "-n", NAMESPACE)
    for make in (aggregator.account, aggregator.role, aggregator.role_binding):
        api.apply(make(owner))
    return f"system:serviceaccount:{NAMESPACE}:{name}-aggregator"


@asynccontextmanager
async def connect_job(account: str, name: str, uid: str) -> AsyncIterator[KubernetesJob]:
    async with client.ApiClient(await _configuration()) as api:
        api.set_default_header("Impersonate-User", account)
        yield KubernetesJob(api, Metadata(name=name, namespace=NAMESPACE, uid=uid))


def status(**changes: Any) -> dict[str, Any]:
    silos = tuple(STATUS.silos[0].model_copy(update={"name": silo}) for silo in SILOS)
    return aggregator_fields(STATUS.model_copy(update={"silos": silos} | changes), "digits-12345678")


async def test_a_report_is_taken_and_what_is_over_goes(api: Kubectl, name: str, account: str) -> None:
    uid = api.get("fj", name, "-n", NAMESPACE)["metadata"]["uid"]
    async with connect_job(account, name, uid) as found:
        await found.apply(status())
        report(api, name, operators(phase="Complete"))
        over = {"step": None, "round_start_time": None, "round_deadline": None}
        await found.apply(status(**over, model=ModelStatus(path="model.safetensors", sha256="0" * 64)))
    seen = api.get("fj", name, "-n", NAMESPACE)["status"]
    assert (seen["phase"], seen["progress"], seen["model"]["claim"]) == (
        "Complete",
        "7/50",
        "digits-12345678",
    )
    assert not seen.keys() & over.keys()
    assert [(silo["phase"], silo["bytesSent"]) for silo in seen["silos"]] == [("Running", 1234)] * 3


async def test_a_job_that_was_made_anew_gets_nothing_of_the_old_one(
    api: Kubectl, name: str, account: str
) -> None:
    uid = api.get("fj", name, "-n", NAMESPACE)["metadata"]["uid"]
    api.run("delete", "fj", name, "-n", NAMESPACE)
    async with connect_job(account, name, uid) as found:
        with pytest.raises(JobGoneError, match="does not exist any more"):
            await found.apply(status())
        api.apply(job(name))
        with pytest.raises(JobGoneError, match="has another uid by now"):
            await found.apply(status())
    assert "status" not in api.get("fj", name, "-n", NAMESPACE)


async def test_what_the_policy_refuses_is_reported_with_its_message(
    name: str, account: str, api: Kubectl
) -> None:
    uid = api.get("fj", name, "-n", NAMESPACE)["metadata"]["uid"]
    async with connect_job(account, name, uid) as found:
        with pytest.raises(OSError, match=r"names a silo that the operator does not list"):
            await found.apply(status(silos=(STATUS.silos[0].model_copy(update={"name": "stranger"}),)))
