"""Whoever has rights in one namespace asks for nothing else, and otherwise has a cluster like any other."""

from __future__ import annotations

from contextlib import aclosing

import pytest

from fedsilo_operator.cluster.one_namespace import NamespaceCluster
from fedsilo_operator.objects import CONFIG_MAP, Ref
from tests.contract_objects import config_map
from tests.operator_contract import Contract
from tests.operator_fakes.cluster import FakeCluster


@pytest.fixture
def namespace() -> str:
    return "test"


class TestOneNamespace(Contract):
    @pytest.fixture
    def cluster(self) -> NamespaceCluster:
        return NamespaceCluster(FakeCluster(), "test")


async def test_others_are_neither_listed_nor_watched() -> None:
    server = FakeCluster()
    seen = NamespaceCluster(server, "test")
    await server.create(config_map("elsewhere"))
    before = await seen.list(CONFIG_MAP)
    assert before.items == ()
    await server.create(config_map("other"))
    await server.create(config_map("test"))
    async with aclosing(seen.watch(CONFIG_MAP, before.resource_version)) as changes:
        first = await anext(aiter(changes))
    assert first.object["metadata"]["namespace"] == "test"
    assert await seen.get(CONFIG_MAP, Ref("other", "a")), "what is asked for by name is asked for"
