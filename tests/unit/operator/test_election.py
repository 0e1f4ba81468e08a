"""Never two of several candidates lead, and one always does before long."""

from __future__ import annotations

import asyncio
import itertools
import random
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsilo_operator.cluster.interface import ClusterError, ClusterUnavailable, Conflict
from fedsilo_operator.objects import LEASE, Kind, Ref
from fedsilo_operator.runtime.election import LEASE_SECONDS, RENEW_DEADLINE_SECONDS, Election, LeaseLost
from tests.operator_fakes import virtual
from tests.operator_fakes.cluster import FakeCluster

REF = Ref("n", "lease")


class Candidate:
    """A process that leads while it may."""

    def __init__(self, cluster: FakeCluster, identity: str, leaders: set[str]) -> None:
        self.identity = identity
        self.election = Election(cluster, REF, identity)
        self.leaders = leaders
        self.task = asyncio.ensure_future(self.run())

    async def run(self) -> None:
        try:
            await self.election.acquire()
            self.leaders.add(self.identity)
            assert len(self.leaders) == 1, self.leaders
            await self.election.hold()
        finally:
            self.leaders.discard(self.identity)

    async def kill_candidate(self) -> None:
        """End the candidate as by SIGKILL: nothing is given back."""
        self.task.cancel()
        await asyncio.wait([self.task])


@settings(max_examples=50)
@given(seed=st.integers(0, 2**32))
def test_there_are_never_two_leaders(seed: int) -> None:
    assert_one_leads(seed)


@pytest.mark.thorough
@settings(max_examples=150)
@given(seed=st.integers(0, 2**32))
def test_there_are_never_two_leaders_in_many_elections(seed: int) -> None:
    assert_one_leads(seed)


def assert_one_leads(seed: int) -> None:
    draw = random.Random(seed)
    rate = draw.choice([0.0, 0.2, 0.6])

    def faults(verb: str, kind: Kind) -> ClusterError | None:
        return draw.choice([ClusterUnavailable("fault"), Conflict("fault")]) if draw.random() < rate else None

    cluster = FakeCluster(faults=faults, delay=lambda: draw.choice([0, 0.01, 1, 9]))

    async def run() -> None:
        leaders: set[str] = set()
        candidates = [Candidate(cluster, f"c{number}", leaders) for number in range(3)]
        for number in range(3, 20):
            await asyncio.sleep(draw.choice([0, 1, 10, 60]))
            if draw.random() < 0.5:
                await draw.choice(candidates).kill_candidate()
            candidates.append(Candidate(cluster, f"c{number}", leaders))
        if rate == 0:
            cluster.delay = lambda: 0.0
            await asyncio.sleep(40)
            assert leaders
        for candidate in candidates:
            await candidate.kill_candidate()
        for candidate in candidates:
            if not candidate.task.cancelled():
                assert isinstance(candidate.task.exception(), LeaseLost)

    virtual.run(run())


@pytest.mark.parametrize("moment", [0.0, 0.3, 0.9, 1.7, 2.3])
def test_a_killed_leader_is_replaced_within_fifteen_seconds(moment: float) -> None:
    async def run() -> None:
        cluster, leaders = FakeCluster(), set[str]()
        first = Candidate(cluster, "first", leaders)
        await asyncio.sleep(1)
        second = Candidate(cluster, "second", leaders)
        await asyncio.sleep(100 + moment)
        assert leaders == {"first"}
        await first.kill_candidate()
        before = asyncio.get_running_loop().time()
        while not leaders:
            await asyncio.sleep(0.1)
        assert LEASE_SECONDS - 3 < asyncio.get_running_loop().time() - before < 15
        assert cluster.peek(LEASE, REF)["spec"]["leaseTransitions"] == 2
        await second.kill_candidate()

    virtual.run(run())


def test_a_lease_is_given_back_though_a_renewal_was_under_way() -> None:
    async def run() -> None:
        conflicts = iter([Conflict("renewed meanwhile")])
        faults: list[bool] = []
        cluster = FakeCluster(
            faults=lambda verb, kind: next(conflicts, None) if faults and verb == "apply" else None
        )
        first = Candidate(cluster, "first", set())
        await asyncio.sleep(10)
        await first.kill_candidate()
        faults.append(True)
        await first.election.release()
        assert cluster.peek(LEASE, REF)["spec"]["holderIdentity"] == ""

    virtual.run(run())


def test_a_lease_given_back_is_taken_at_once() -> None:
    async def run() -> None:
        cluster, leaders = FakeCluster(), set[str]()
        first = Candidate(cluster, "first", leaders)
        await asyncio.sleep(1)
        second = Candidate(cluster, "second", leaders)
        await asyncio.sleep(10)
        await first.kill_candidate()
        await first.election.release()
        await second.election.release()  # it has nothing to give back
        await asyncio.sleep(3)
        assert leaders == {"second"}
        await second.kill_candidate()

    virtual.run(run())


def test_a_leader_without_answers_stops_before_another_may_lead() -> None:
    async def run(kind: str) -> None:
        cluster, leaders = FakeCluster(), set[str]()
        candidate = Candidate(cluster, "one", leaders)
        await asyncio.sleep(60)
        if kind == "errors":
            cluster.faults = lambda verb, kind: ClusterUnavailable("down")
        else:
            cluster.delay = lambda: 1000.0
        before = asyncio.get_running_loop().time()
        with pytest.raises(LeaseLost, match=f"could not be renewed for {RENEW_DEADLINE_SECONDS:.0f} s"):
            await candidate.task
        assert asyncio.get_running_loop().time() - before <= RENEW_DEADLINE_SECONDS
        assert not leaders

    for kind in ("errors", "silence"):
        virtual.run(run(kind))


def test_the_lease_runs_from_the_request_that_renewed_it_not_from_its_answer() -> None:
    async def run() -> None:
        cluster, leaders = FakeCluster(), set[str]()
        candidate = Candidate(cluster, "one", leaders)
        await asyncio.sleep(60)
        late = itertools.chain([0, 7], itertools.repeat(1000))
        cluster.delay = lambda: next(late)
        before = asyncio.get_running_loop().time()
        with pytest.raises(LeaseLost):
            await candidate.task
        assert asyncio.get_running_loop().time() - before < LEASE_SECONDS

    virtual.run(run())


def test_a_lease_that_somebody_else_wrote_to_is_renewed_as_long_as_it_is_ours() -> None:
    async def run() -> None:
        cluster, leaders, asked = FakeCluster(), set[str](), list[str]()
        candidate = Candidate(cluster, "one", leaders)
        await asyncio.sleep(10)
        cluster.faults = lambda verb, kind: asked.append(verb)
        await asyncio.sleep(10)
        assert set(asked) == {"apply"}, "nothing has to be read"
        lease = cluster.peek(LEASE, REF)
        cluster.put(lease | {"metadata": lease["metadata"] | {"annotations": {"by": "hand"}}})
        await asyncio.sleep(60)
        assert leaders == {"one"}
        assert asked.count("get") == 1
        await candidate.kill_candidate()

    virtual.run(run())


def test_a_leader_that_finds_another_stops_at_once() -> None:
    async def run() -> None:
        cluster, leaders = FakeCluster(), set[str]()
        candidate = Candidate(cluster, "one", leaders)
        await asyncio.sleep(10)
        lease = cluster.peek(LEASE, REF)
        cluster.put(lease | {"spec": lease["spec"] | {"holderIdentity": "two"}})
        with pytest.raises(LeaseLost, match="held by two"):
            await asyncio.wait_for(candidate.task, 3)
        await candidate.election.release()
        assert cluster.peek(LEASE, REF)["spec"]["holderIdentity"] == "two"

    virtual.run(run())


def test_a_leader_whose_lease_was_deleted_stops_at_once() -> None:
    async def run() -> None:
        cluster, leaders = FakeCluster(), set[str]()
        candidate = Candidate(cluster, "one", leaders)
        await asyncio.sleep(10)
        cluster.remove(LEASE, REF)
        with pytest.raises(LeaseLost, match="held by nobody"):
            await asyncio.wait_for(candidate.task, 3)

    virtual.run(run())


def test_the_lease_reads_as_kubernetes_writes_it() -> None:
    async def run() -> None:
        cluster = FakeCluster()
        await Election(cluster, REF, "host_1").acquire()
        spec = cluster.peek(LEASE, REF)["spec"]
        assert spec | {"acquireTime": "", "renewTime": ""} == {
            "holderIdentity": "host_1",
            "leaseDurationSeconds": LEASE_SECONDS,
            "leaseTransitions": 1,
            "acquireTime": "",
            "renewTime": "",
        }
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", spec["renewTime"])

    virtual.run(run())
