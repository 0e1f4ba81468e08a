"""The fake cluster keeps the contract behind the API of Kubernetes too, where real processes use it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fedsilo_operator.cluster.api_server import ApiServer, api_server
from fedsilo_operator.cluster.interface import Unavailable
from fedsilo_operator.objects import CONFIG_MAP, Ref
from tests.contract_objects import config_map
from tests.operator_contract import Contract
from tests.operator_fakes.served import ServedCluster


@pytest.fixture
async def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ServedCluster]:
    with ServedCluster(tmp_path / "kubeconfig") as cluster:
        monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))
        yield cluster


@pytest.fixture
async def cluster(served: ServedCluster) -> AsyncIterator[ApiServer]:
    async with api_server() as found:
        yield found


@pytest.fixture
def namespace() -> str:
    return "test"


class TestServed(Contract):
    pass


async def test_one_that_is_down_is_unavailable_and_forgets_nothing(
    served: ServedCluster, cluster: ApiServer
) -> None:
    await cluster.create(config_map("test"))
    served.down = True
    with pytest.raises(Unavailable, match="the server is starting"):
        await cluster.get(CONFIG_MAP, Ref("test", "a"))
    served.down = False
    assert await cluster.get(CONFIG_MAP, Ref("test", "a"))
