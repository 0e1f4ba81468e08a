"""The whole operator over a cluster in memory: from apply to model, whatever goes wrong on the way."""

from __future__ import annotations

import asyncio
import gc
import logging
import random
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from random import Random
from typing import Any

import pytest

from fedsilo.api.observed import Object
from fedsilo_operator.cluster.interface import ClusterError, Conflict, Gone, Unavailable
from fedsilo_operator.job.controller import JobController
from fedsilo_operator.objects import (
    CLAIM,
    CONFIG_MAP,
    FEDERATED_JOB,
    JOB,
    NETWORK_POLICY,
    POD,
    ROLE,
    ROLE_BINDING,
    SECRET,
    SERVICE,
    SERVICE_ACCOUNT,
    SILO_AGENT,
    SILO_KIND,
    Kind,
    ref_of,
)
from fedsilo_operator.runtime.controller import Reconciler
from fedsilo_operator.runtime.operator import Operator
from fedsilo_operator.runtime.store import Store, WriteThrough
from fedsilo_operator.silo.controller import SiloController
from tests.operator_fakes.cluster import FakeCluster
from tests.operator_fakes.virtual import run
from tests.unit.operator.job.scene import (
    JOB_REF,
    NORTH,
    SETTINGS,
    SOUTH,
    START,
    manifest,
    signing_secret,
    silo,
)
from tests.unit.operator.world import World

CHILDREN = (SERVICE, SERVICE_ACCOUNT, ROLE, ROLE_BINDING, NETWORK_POLICY, CONFIG_MAP, JOB, SILO_AGENT)
TROUBLE, REST = 24, 160
"""Seconds in which things go wrong, from admission to the first rounds, and after which the last round may end."""

PATIENCE = 3000
"""Seconds after which a job that is not over hangs."""


@dataclass
class Course:
    """One run of the operator, from the seed.

    :param rate: part of the calls and of the lines of watches that go wrong while there is trouble.
    :param transitions: status of each condition of the job, as it changed.
    """

    seed: int
    rate: float = 0.0
    deletions: int = 0
    crashes: int = 0
    transitions: dict[str, list[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        self.troubled = False
        self.cluster = FakeCluster(faults=self._fault, now=self._now, delay=self._delay)
        self.world = World(self.cluster, self.random, self.crashes)
        self.cluster.put(manifest(backoffLimit=6))
        for ref in (NORTH, SOUTH):
            self.cluster.put(silo(ref))
            self.cluster.put(signing_secret(ref))

    def _now(self) -> Any:
        with suppress(RuntimeError):
            return START + timedelta(seconds=asyncio.get_running_loop().time())
        return START

    def _delay(self) -> float:
        return self.random.random() * 0.2

    def _fault(self, verb: str, kind: Kind) -> ClusterError | None:
        if not self.troubled or self.random.random() >= self.rate:
            return None
        errors: list[ClusterError] = [Unavailable("500"), Unavailable("time-out")]
        errors += [Gone("410")] if verb == "watch" else [Conflict("409")] if verb != "list" else []
        return self.random.choice(errors)

    async def complete(self) -> None:
        """Run the operator until the job is over and nothing moves any more."""
        store = Store()
        cluster = WriteThrough(self.cluster, store)
        controllers: list[Reconciler] = [
            JobController(cluster, store, SETTINGS, self._now),
            SiloController(cluster, store, SETTINGS, self._now),
        ]
        operating = asyncio.ensure_future(Operator(cluster, store, controllers).run())
        try:
            await self._until_over(operating)
            writes = -1
            while writes < len(self.cluster.writes):
                writes = len(self.cluster.writes)
                for pause in (1, 1, 400):
                    await self._pass(pause)
        finally:
            operating.cancel()
            with suppress(asyncio.CancelledError):
                await operating

    async def _until_over(self, operating: asyncio.Future[Any]) -> None:
        times = sorted(self.random.uniform(2, TROUBLE) for _ in range(self.deletions))
        second = 0
        while second < PATIENCE:
            while times and times[0] <= second:
                times.pop(0)
                self._delete_something()
            self.troubled = self.rate > 0 and second < TROUBLE
            self.world.may_end = not self.rate or second >= REST
            pause = 2 if second < TROUBLE or self.world.may_end else 20
            await self._pass(pause)
            second += pause
            assert not operating.done(), f"seed {self.seed}: the operator ended: {operating.exception()!r}"
            if "Complete" in self.transitions or "Failed" in self.transitions:
                return
        raise AssertionError(f"seed {self.seed}: hangs: {self.job['status']}")

    async def _pass(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        self.world.step()
        self._disturb()
        self._note()

    def _disturb(self) -> None:
        if not self.troubled:
            return
        happens = self.random.random()
        if happens < 0.05:
            self.cluster.cut_watches()
        elif happens < 0.1:
            self.cluster.compact()
            self.cluster.cut_watches()
        elif happens < 0.2:
            self.cluster.send_bookmarks()

    def _delete_something(self) -> None:
        kind = self.random.choice((*CHILDREN, POD))
        objects = self.cluster.objects(kind)
        if objects:
            self.cluster.remove(kind, ref_of(self.random.choice(objects)))

    @property
    def job(self) -> Object:
        """The job as it is."""
        job = self.cluster.peek(FEDERATED_JOB, JOB_REF)
        return job | {"status": job.get("status") or {}}

    def _note(self) -> None:
        (job,) = self.cluster.glance(FEDERATED_JOB)
        for item in job.get("status", {}).get("conditions", ()):
            seen = self.transitions.setdefault(item["type"], [])
            if not seen or seen[-1] != item["status"]:
                seen.append(item["status"])

    def outcome(self) -> dict[str, Any]:
        """Everything that is there in the end, without what is new in every run by nature."""
        kinds = (FEDERATED_JOB, SILO_KIND, SILO_AGENT, CLAIM, SECRET, *CHILDREN)
        return {
            f"{kind} {ref_of(obj)}": _without_chance(obj)
            for kind in kinds
            for obj in self.cluster.objects(kind)
        }


CHANCE = {
    *("uid", "resourceVersion", "managedFields", "creationTimestamp", "generation", "observedGeneration"),
    *("lastTransitionTime", "startTime", "completionTime", "failed", "clusterIP", "address", "ip"),
    *("tls.crt", "agent.json", "trust.json", "configuration"),
}
"""Fields that hold a time, a number that the API server counts, or an address that it chose."""


DEFAULTS = {"suspend": False}
"""What an API server writes where nothing is said: a Job that was suspended for a while says it itself."""


def _without_chance(value: Any) -> Any:
    if isinstance(value, dict):
        said = {key: item for key, item in value.items() if key not in CHANCE}
        return {
            key: _without_chance(item) for key, item in said.items() if (key, item) not in DEFAULTS.items()
        }
    return [_without_chance(item) for item in value] if isinstance(value, list) else value


def differences(found: Any, wanted: Any, path: str = "") -> Iterator[str]:
    """Where two values differ, as paths."""
    if isinstance(found, dict) and isinstance(wanted, dict):
        for key in sorted({*found, *wanted}):
            yield from differences(found.get(key), wanted.get(key), f"{path}.{key}")
    elif found != wanted:
        yield f"{path}: {found!r} instead of {wanted!r}"


@pytest.fixture(scope="module")
def undisturbed() -> dict[str, Any]:
    course = Course(0)
    run(course.complete())
    assert course.job["status"]["phase"] == "Complete"
    return course.outcome()


def test_apply_to_model(undisturbed: dict[str, Any]) -> None:
    status = undisturbed["FederatedJob federation/digits"]["status"]
    assert status["progress"] == "3/3"
    assert [entry["phase"] for entry in status["silos"]] == ["Finished", "Finished"]


def test_no_condition_goes_back_when_nothing_goes_wrong() -> None:
    course = Course(0)
    run(course.complete())
    assert course.transitions == {
        "Accepted": ["True"],
        "Admitted": ["False", "True"],
        "SilosReady": ["False", "True", "False"],
        "Running": ["False", "True", "False"],
        "Complete": ["True"],
    }


@pytest.fixture
def hurry() -> Iterator[None]:
    """Thousands of messages that nobody reads, and searches for garbage that there is hardly any of."""
    logging.disable(logging.CRITICAL)
    gc.disable()
    yield
    gc.enable()
    logging.disable(logging.NOTSET)


@pytest.mark.usefixtures("hurry")
@pytest.mark.parametrize("block", range(20))
def test_whatever_goes_wrong_the_end_is_the_same(undisturbed: dict[str, Any], block: int) -> None:
    for seed in range(50 * block, 50 * (block + 1)):
        draw = random.Random(seed)
        course = Course(
            seed, rate=draw.choice((0.02, 0.1, 0.3)), deletions=draw.randrange(4), crashes=draw.randrange(3)
        )
        run(course.complete())
        assert list(differences(course.outcome(), undisturbed)) == [], f"seed {seed}"
        assert course.transitions["Complete"] == ["True"], f"seed {seed}"
        assert course.transitions["Admitted"] in (["True"], ["False", "True"]), f"seed {seed}"
        assert course.transitions["Accepted"] == ["True"], f"seed {seed}"
