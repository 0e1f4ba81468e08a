"""A real API server keeps the contract; what only a real one does is tried here too."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from itertools import count
from pathlib import Path

import pytest

from fedsilo.errors import ManifestInvalid
from fedsilo_operator.cluster import api_server as implementation
from fedsilo_operator.cluster.api_server import ApiServer, api_server
from fedsilo_operator.cluster.interface import CallRefused, ClusterUnavailable, NotFound
from fedsilo_operator.objects import CONFIG_MAP, Kind, Ref
from hack.cluster import apiserver
from hack.cluster.kubectl import Kubectl
from tests.contract_objects import config_map
from tests.operator_contract import Contract
from tests.paths import ROOT

_numbers = count()


@pytest.fixture(scope="module")
def kubeconfig() -> Iterator[Path]:
    with apiserver.api_server("contract") as path:
        kubectl = Kubectl(path)
        kubectl.run("apply", "--server-side", "-k", str(ROOT / "manifests" / "crds"))
        kubectl.run("wait", "--for=condition=Established", "crd", "--all")
        yield path


@pytest.fixture
async def cluster(kubeconfig: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ApiServer]:
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    async with api_server() as found:
        yield found


@pytest.fixture
async def namespace(cluster: ApiServer) -> str:
    name = f"contract-{next(_numbers)}"
    metadata = {"name": name}
    await cluster._connection.call(
        "POST", "/api/v1/namespaces", body={"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
    )
    return name


class TestApiServer(Contract):
    pass


async def test_pages_are_put_together(
    cluster: ApiServer, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(implementation, "PAGE_OBJECTS", 3)
    for number in range(8):
        await cluster.create(config_map(namespace, f"c{number}"))
    listing = await cluster.list(CONFIG_MAP, namespace=namespace)
    assert [item["metadata"]["name"] for item in listing.items] == [f"c{number}" for number in range(8)]
    await cluster.create(config_map(namespace, "after"))
    async for change in cluster.watch(CONFIG_MAP, listing.resource_version, namespace=namespace):
        assert change.object["metadata"]["name"] == "after"
        break


async def test_a_field_that_the_schema_lacks_is_refused(cluster: ApiServer, namespace: str) -> None:
    with pytest.raises(CallRefused, match="field not declared in schema"):
        await cluster.apply(config_map(namespace) | {"nonsense": 1}, manager="one")


async def test_a_kind_without_definition_names_the_remedy(cluster: ApiServer) -> None:
    with pytest.raises(NotFound, match="custom resource definitions"):
        await cluster.list(Kind("fedsilo.io/v1", "Nothing", "nothings"))


async def test_nothing_is_made_in_a_namespace_that_is_not_there(cluster: ApiServer) -> None:
    with pytest.raises(NotFound, match='namespaces "none" not found'):
        await cluster.apply(config_map("none"), manager="one")


async def test_a_server_that_stopped_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    with apiserver.api_server("contract-stopped") as path:
        monkeypatch.setenv("KUBECONFIG", str(path))
        async with api_server() as cluster:
            start = (await cluster.list(CONFIG_MAP)).resource_version

            async def changes() -> None:
                async for change in cluster.watch(CONFIG_MAP, start):
                    assert change.type == "BOOKMARK"

            watching = asyncio.ensure_future(changes())
            await asyncio.sleep(0.2)
            await asyncio.to_thread(apiserver.stop, "contract-stopped")
            with pytest.raises(ClusterUnavailable):
                await asyncio.wait_for(watching, 10)
            with pytest.raises(ClusterUnavailable, match="GET https://"):
                await cluster.get(CONFIG_MAP, Ref("default", "a"))


async def test_without_kubeconfig_and_pod_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(ManifestInvalid, match="KUBECONFIG"):
        async with api_server():
            pass
