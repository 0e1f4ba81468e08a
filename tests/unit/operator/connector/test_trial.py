"""Random histories of an institution: the hub changes and goes away, requests fail, and the process dies; in the end
both sides agree."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from fedsilo.api.agent import agent_name
from fedsilo.api.observed import uid_of
from fedsilo.errors import Problem
from fedsilo.hub.client import HubAgent
from fedsilo.hub.failures import Unreachable
from fedsilo_operator.cluster.interface import ClusterUnavailable
from fedsilo_operator.connector.mirrored import HUB_UID
from fedsilo_operator.objects import SECRET, SILO_AGENT, labels_of
from tests.operator_fakes.virtual import run
from tests.unit.operator.connector.bench import Institution
from tests.unit.operator.silo.harness import JOB_REF, SILO_REF

JOBS = [f"0b1c2d3e-0000-4000-8000-00000000000{number}" for number in range(3)]


class Trial:
    """One random history of an institution and its hub.

    :ivar seen: local uid -> uid at the hub and specification but for the suspension, which never change.
    """

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.made = 0
        self.seen: dict[str, tuple[str, object]] = {}
        self.faulty = 0.0

    async def play(self) -> None:
        here = Institution()
        here.cluster.faults = lambda verb, _: (
            ClusterUnavailable("no connection")
            if verb != "watch" and self.random.random() < self.faulty
            else None
        )
        try:
            await here.join()
            for _ in range(60):
                await self.step(here)
                await asyncio.sleep(self.random.choice((0, 0.01, 0.3, 5, 90)))
                self.check(here)
            self.faulty, here.hub.away = 0.0, None
            here.hub.news()
            await here.wait_until(lambda: self.agrees(here))
            assert len(here.cluster.objects(SECRET)) == 1
            assert here.hub.requests.count("enrol") == 1
        finally:
            await here.kill()

    async def step(self, here: Institution) -> None:
        """Let something happen at the hub or in the cluster."""
        hub, chance = here.hub, self.random.random()
        uid = self.random.choice(JOBS)
        name = agent_name(JOB_REF.name, uid, SILO_REF.namespace, SILO_REF.name)
        if chance < 0.3 and name not in hub.agents:
            self.made += 1
            hub.put(self.agent(here, name, uid, f"hub-{self.made}", True))
        elif chance < 0.5 and name in hub.agents:
            suspend = not hub.agents[name].spec.get("suspend", False)
            hub.put(self.agent(here, name, uid, hub.agents[name].uid, suspend))
        elif chance < 0.6 and name in hub.agents:
            hub.remove(name)
        elif chance < 0.7:
            failures = (Unreachable("gone"), Problem("unreachable", "no API server"), None, None)
            hub.away = self.random.choice(failures)
            hub.news()
        elif chance < 0.8:
            self.faulty = self.random.choice((0.0, 0.2, 1.0))
        elif chance < 0.9:
            await here.kill()
            here.start()

    def agent(self, here: Institution, name: str, uid: str, hub_uid: str, suspend: bool) -> HubAgent:
        spec = here.spec(suspend=suspend)
        return HubAgent(name, hub_uid, {**spec, "job": {**spec["job"], "uid": uid}})

    def check(self, here: Institution) -> None:
        """What was begun under an identity is never changed."""
        for found in here.cluster.objects(SILO_AGENT):
            frozen = {name: value for name, value in found["spec"].items() if name != "suspend"}
            identity = labels_of(found)[HUB_UID], frozen
            assert self.seen.setdefault(uid_of(found), identity) == identity

    def agrees(self, here: Institution) -> bool:
        """Whether the institution has what the hub has, and the hub knows how that is."""
        local = {found["metadata"]["name"]: found for found in here.cluster.objects(SILO_AGENT)}
        return {name: (one.uid, one.spec.get("suspend", False)) for name, one in here.hub.agents.items()} == {
            name: (labels_of(found)[HUB_UID], found["spec"].get("suspend", False))
            for name, found in local.items()
        } and all(
            here.hub.statuses.get(name, {}).get("decision")
            == found.get("status", {}).get("decision")
            is not None
            and here.hub.statuses[name]["phase"] == found["status"]["phase"]
            for name, found in local.items()
        )


@pytest.mark.parametrize("seed", range(4))
def test_both_sides_agree_in_the_end(seed: int) -> None:
    run(Trial(seed).play())


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(4, 25))
def test_both_sides_agree_in_the_end_of_other_histories(seed: int) -> None:
    run(Trial(seed).play())
