"""The fake cluster keeps the contract behind the API of Kubernetes too, where real processes use it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml
from aiohttp import web

from fedsilo_operator.cluster.api_server import ApiServer, api_server
from fedsilo_operator.cluster.interface import ClusterUnavailable
from fedsilo_operator.objects import CONFIG_MAP, Ref
from tests.contract_objects import config_map
from tests.operator_contract import Contract
from tests.operator_fakes.served import ServedCluster


@pytest.fixture
async def served_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ServedCluster]:
    with ServedCluster(tmp_path / "kubeconfig") as cluster:
        monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))
        yield cluster


@pytest.fixture
async def cluster(served_cluster: ServedCluster) -> AsyncIterator[ApiServer]:
    async with api_server() as found:
        yield found


@pytest.fixture
def namespace() -> str:
    return "test"


class TestServedCluster(Contract):
    pass


async def test_one_that_is_down_is_unavailable_and_forgets_nothing(
    served_cluster: ServedCluster, cluster: ApiServer
) -> None:
    await cluster.create(config_map("test"))
    served_cluster.down = True
    with pytest.raises(ClusterUnavailable, match="the server is starting"):
        await cluster.get(CONFIG_MAP, Ref("test", "a"))
    served_cluster.down = False
    assert await cluster.get(CONFIG_MAP, Ref("test", "a"))


async def test_a_request_asks_no_thread(cluster: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    monkeypatch.setattr(loop, "run_in_executor", lambda *_: pytest.fail("a request waits for a thread"))
    await cluster.create(config_map("test"))
    assert await cluster.get(CONFIG_MAP, Ref("test", "a"))


@pytest.mark.parametrize("bypassed", [False, True])
async def test_the_proxy_of_the_environment_is_used(
    served_cluster: ServedCluster, monkeypatch: pytest.MonkeyPatch, bypassed: bool
) -> None:
    asked: list[tuple[str, str | None]] = []

    async def proxy(request: web.BaseRequest) -> web.Response:
        asked.append((request.raw_path, request.headers.get("Proxy-Authorization")))
        return web.json_response({"said": "by the proxy"})

    runner = web.ServerRunner(web.Server(proxy))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    monkeypatch.setenv("http_proxy", f"http://lab:secret@127.0.0.1:{runner.addresses[0][1]}")
    monkeypatch.setenv("no_proxy", "127.0.0.1" if bypassed else "elsewhere.example.org")
    server = yaml.safe_load(served_cluster.kubeconfig.read_text())["clusters"][0]["cluster"]["server"]
    async with api_server() as cluster:
        if bypassed:
            await cluster.create(config_map("test"))
        else:
            assert await cluster.get(CONFIG_MAP, Ref("test", "a")) == {"said": "by the proxy"}
    await runner.cleanup()
    login = "Basic bGFiOnNlY3JldA=="
    assert asked == ([] if bypassed else [(f"{server}/api/v1/namespaces/test/configmaps/a", login)])
