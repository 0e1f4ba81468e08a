"""The dashboard on a cluster: jobs from the caches, Events while somebody looks, and only for who may list jobs."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request
from typing_extensions import override

from fedsilo.api.observed import Object
from fedsilo.errors import ManifestInvalid
from fedsilo.wire import issue_server, make_authority
from fedsilo_operator.__main__ import main
from fedsilo_operator.cluster.interface import CallRefused, ClusterUnavailable
from fedsilo_operator.dashboard import source as source_module
from fedsilo_operator.dashboard.access import CACHE_SECONDS, TokenAccess
from fedsilo_operator.dashboard.serving import dashboard, institution_dashboard
from fedsilo_operator.dashboard.source import InstitutionSource, Source
from fedsilo_operator.objects import EVENT, FEDERATED_JOB, SILO_AGENT, SILO_KIND, Kind
from fedsilo_operator.runtime.store import Store
from tests.operator_fakes.cluster import FakeCluster
from tests.unit.dashboard.institutions import hospital
from tests.unit.dashboard.snapshots import consortium


class Cluster(FakeCluster):
    """A cluster that knows three tokens: of somebody who may list all jobs, of one namespace, of none."""

    asked: list[str]
    broken = False
    listed: list[str | None]

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        self.asked, self.listed = [], []

    @override
    async def create(self, obj: Object) -> Object:
        if self.broken:
            raise ClusterUnavailable("no connection")
        self.asked.append(obj["kind"])
        spec = obj["spec"]
        if obj["kind"] == "TokenReview":
            if spec["token"] not in ("all", "some", "none"):
                return obj | {"status": {"authenticated": False, "error": "invalid bearer token"}}
            user = {"username": spec["token"], "groups": ["people"], "extra": {"scopes": ["a"]}}
            return obj | {"status": {"authenticated": True, "user": user}}
        about = spec["resourceAttributes"]
        assert (about["verb"], about["resource"], about["group"]) == ("list", "federatedjobs", "fedsilo.io")
        assert (spec["groups"], spec["extra"]) == (["people"], {"scopes": ["a"]})
        allowed = {"all": True, "some": about["namespace"] == "research", "none": False}[spec["user"]]
        return obj | {"status": {"allowed": allowed}}

    @override
    async def list(self, kind: Kind, **selection: Any) -> Any:
        assert (kind, selection["fields"]) == (EVENT, "involvedObject.kind=FederatedJob")
        self.listed.append(selection["namespace"])
        if selection["namespace"] == "closed":
            raise CallRefused("events is forbidden")
        return await super().list(kind, **selection)


def put_cached(store: Store, kind: Kind, obj: Any, version: int = 1) -> None:
    """Put an object where a reflector would."""
    typed = {"apiVersion": kind.api, "kind": kind.name, **obj}
    typed["metadata"] = obj["metadata"] | {"resourceVersion": str(version)}
    store.indexer(kind, "").update(typed)


@pytest.fixture
def store() -> Store:
    found, snapshot = Store(), consortium()
    for job in snapshot.jobs:
        put_cached(found, FEDERATED_JOB, job)
    first: Any = snapshot.jobs[0]
    other = first | {"metadata": first["metadata"] | {"namespace": "closed", "uid": "closed"}}
    put_cached(found, FEDERATED_JOB, other)
    for agent in snapshot.agents:
        put_cached(found, SILO_AGENT, agent)
    return found


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, ssl.SSLContext]:
    """A directory as the kubelet mounts it, and a client that trusts it."""
    authority = make_authority()
    cert, key = issue_server(authority, ["localhost", "127.0.0.1"])
    (tmp_path / "tls.crt").write_bytes(cert)
    (tmp_path / "tls.key").write_bytes(key)
    return tmp_path, ssl.create_default_context(cadata=authority.cert_pem.decode())


class Client:
    """Asks with a token, or without."""

    def __init__(self, session: aiohttp.ClientSession, address: str, trust: ssl.SSLContext) -> None:
        self._session, self._address, self._trust = session, address, trust

    async def jobs(self, token: str | None) -> tuple[int, set[str]]:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        async with self._session.get(
            f"{self._address}/api/jobs", ssl=self._trust, headers=headers
        ) as response:
            if response.status != 200:
                return response.status, set()
            return 200, {job["namespace"] for job in (await response.json())["jobs"]}


@asynccontextmanager
async def served_dashboard(
    cluster: Cluster, store: Store, certificate: tuple[Path, ssl.SSLContext]
) -> AsyncIterator[Client]:
    folder, trust = certificate
    async with dashboard(cluster, store, 0, folder) as port, aiohttp.ClientSession() as session:
        yield Client(session, f"https://127.0.0.1:{port}", trust)


async def test_everybody_sees_what_they_may_list(
    store: Store, certificate: tuple[Path, ssl.SSLContext]
) -> None:
    async with served_dashboard(Cluster(), store, certificate) as client:
        assert await client.jobs("all") == (200, {"research", "closed"})
        assert await client.jobs("some") == (200, {"research"})
        assert await client.jobs("none") == (403, set())
        assert await client.jobs("stolen") == (401, set())
        assert await client.jobs(None) == (401, set())


async def test_answers_are_remembered_but_not_for_ever(store: Store) -> None:
    clock, cluster = [0.0], Cluster()
    access, snapshot = TokenAccess(cluster, lambda: clock[0]), consortium()

    async def ask(token: str) -> object:
        request = make_mocked_request("GET", "/api/jobs", headers={"Authorization": f"Bearer {token}"})
        try:
            return await access.namespaces(request, snapshot)
        except web.HTTPUnauthorized:
            return "stranger"

    for _ in range(3):
        assert [await ask("all"), await ask("stolen")] == [None, "stranger"]
    assert sorted(cluster.asked) == ["SubjectAccessReview", "TokenReview", "TokenReview"]
    clock[0] += CACHE_SECONDS + 1
    assert await ask("all") is None
    assert len(cluster.asked) == 5


async def test_without_the_api_server_nobody_sees_anything(
    store: Store, certificate: tuple[Path, ssl.SSLContext]
) -> None:
    cluster = Cluster()
    cluster.broken = True
    async with served_dashboard(cluster, store, certificate) as client:
        assert await client.jobs("all") == (503, set())
        cluster.broken = False
        assert (await client.jobs("all"))[0] == 200


async def test_the_network_is_served_over_tls_only(
    store: Store, certificate: tuple[Path, ssl.SSLContext]
) -> None:
    async with dashboard(Cluster(), store, 0, certificate[0]) as port, aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.ClientError):
            await session.get(f"http://127.0.0.1:{port}/")


async def test_a_certificate_that_cannot_be_used_is_named(store: Store, tmp_path: Path) -> None:
    (tmp_path / "tls.crt").write_text("nothing")
    with pytest.raises(ManifestInvalid, match=r"tls\.crt and tls\.key cannot be used"):
        async with dashboard(Cluster(), store, 0, tmp_path):
            pass


async def test_on_the_loopback_address_nobody_is_asked_for_a_token(store: Store) -> None:
    cluster = Cluster()
    async with dashboard(cluster, store, 0, None) as port, aiohttp.ClientSession() as session:
        async with session.get(f"http://127.0.0.1:{port}/api/jobs") as response:
            assert (await response.json())["count"] == 5
        async with session.get(
            f"http://127.0.0.1:{port}/api/jobs", headers={"Host": "evil.example"}
        ) as response:
            assert response.status == 403
    assert cluster.asked == []


async def test_a_change_in_the_caches_wakes_who_waits(store: Store) -> None:
    source = Source(Cluster(), store)
    version = source.feed.version
    waiting = asyncio.ensure_future(source.feed.newer(version, 5))
    await asyncio.sleep(0)
    job: Any = consortium().jobs[0]
    put_cached(store, FEDERATED_JOB, job | {"status": job["status"] | {"round": 8}}, version=2)
    assert await waiting
    assert source.snapshot().job("research", "digits").jobs[0]["status"]["round"] == 8


async def test_events_are_asked_for_while_somebody_looks_and_by_namespace(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_module, "EVENTS_POLL_SECONDS", 0.01)
    cluster = Cluster()
    event = consortium().events[0]
    namespace = {"namespace": "research"}
    await FakeCluster.create(
        cluster, {"apiVersion": "v1", "kind": "Event", **event, "metadata": {"name": "one"} | namespace}
    )
    source = Source(cluster, store)
    running = asyncio.ensure_future(source.run())
    await asyncio.sleep(0.05)
    assert cluster.listed == []
    assert await source.feed.newer(source.feed.version, 5)
    assert [found["reason"] for found in source.snapshot().events] == ["Running"]
    assert set(cluster.listed) == {"research", "closed"}
    running.cancel()


def test_a_certificate_without_a_port_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    images = [f"--{role}-image=x" for role in ("aggregator", "guard", "trainer")]
    assert main([*images, "--dashboard-tls", "/nowhere"]) == 2
    assert "--dashboard-tls: needs --dashboard-port" in caplog.text


@pytest.fixture
def one_institution() -> Store:
    """The caches of an institution's own silo controller, and one Silo that is elsewhere."""
    found, snapshot = Store(), hospital()
    for silo in snapshot.silos:
        put_cached(found, SILO_KIND, silo)
    elsewhere: Any = {"metadata": {"namespace": "silo-far", "name": "far"}, "spec": {"remote": {}}}
    put_cached(found, SILO_KIND, elsewhere)
    for agent in snapshot.agents:
        put_cached(found, SILO_AGENT, agent)
    return found


async def test_an_institution_sees_its_own_silo_and_no_other(one_institution: Store) -> None:
    async with (
        institution_dashboard(one_institution, 0) as port,
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{port}/api/silo") as response,
    ):
        found = await response.json()
    assert [silo["name"] for silo in found["silos"]] == ["north"]
    assert found["count"] == 4
    assert found["waiting"] == ["atlas-north-1a2b3c4d"]


async def test_a_change_of_an_agent_wakes_the_institutions_page(one_institution: Store) -> None:
    source = InstitutionSource(one_institution)
    waiting = asyncio.ensure_future(source.feed.newer(source.feed.version, 5))
    await asyncio.sleep(0)
    agent: Any = hospital().agents[1]
    put_cached(
        one_institution, SILO_AGENT, agent | {"status": agent["status"] | {"phase": "Failed"}}, version=2
    )
    assert await waiting
    phases = {one["metadata"]["name"]: one["status"]["phase"] for one in source.snapshot().agents}
    assert phases["digits-north-1a2b3c4d"] == "Failed"
