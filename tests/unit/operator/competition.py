"""Jobs that compete for GPUs, in the whole operator over a cluster in memory; a seed decides what happens to them.

A campaign over many seeds, in as many processes as the machine has cores:

    python -m tests.unit.operator.competition --seeds 1000

Every seed that fails is printed, with what was found; the same command repeats it with `--first SEED --seeds 1`.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from random import Random
from typing import Any

from fedsilo.api.observed import Object, condition, status_of
from fedsilo.api.timestamps import parse_timestamp
from fedsilo_operator.job.controller import JobController
from fedsilo_operator.objects import FEDERATED_JOB, Ref, ref_of
from fedsilo_operator.runtime.controller import Reconciler
from fedsilo_operator.runtime.operator import Operator
from fedsilo_operator.runtime.store import Store, WriteThroughCluster
from fedsilo_operator.silo.controller import SiloController
from tests.operator_fakes.cluster import FakeCluster
from tests.operator_fakes.virtual import run
from tests.unit.operator.crowded_world import GPU, CrowdedWorld
from tests.unit.operator.job.objects import (
    EAST,
    NORTH,
    SETTINGS,
    SOUTH,
    START,
    manifest,
    published_offer,
    signing_secret,
    silo,
)
from tests.unit.operator.trial import MAX_SEED, fresh_seed

SILOS = (NORTH, SOUTH, EAST)

UNREST_SECONDS, SECONDS = 400, 2 * 3600
"""How long jobs come, nodes are drained and Jobs suspended; and after which jobs that can run have ended."""

PATIENCE_SECONDS = 60
"""Time that scheduler, silos and operator may take until a job says what it waits for."""


@dataclass(frozen=True)
class Happening:
    """Something that happens at some second."""

    second: float
    what: str
    name: str = ""
    seconds: float = 0.0


class Competition:
    """Some jobs over silos with few GPUs, until all that can run have ended."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = Random(seed)
        draw = self.random
        self.cluster = FakeCluster(now=self._now, delay=lambda: 0.0)
        gpus = {ref.namespace: draw.randint(1, 4) for ref in SILOS}
        quotas = {ref.namespace: draw.randint(1, 4) for ref in SILOS if draw.random() < 0.3}
        self.world = CrowdedWorld(self.cluster, draw, gpus, quotas)
        self.world.rounds = draw.randint(3, 20)
        for ref in SILOS:
            asked = draw.randint(1, gpus[ref.namespace]) if draw.random() < 0.9 else 5
            one = silo(ref)
            one["spec"]["agent"] = {"resources": {"limits": {GPU: asked}}}
            self.cluster.put(sign_offer_again(one, ref))
            self.cluster.put(signing_secret(ref))
        self.jobs = [self._job(number) for number in range(draw.randint(2, 5))]
        self.happenings = sorted(self._happenings(), key=lambda one: one.second)
        self.put_off: Counter[str] = Counter()
        self.seconds = 0.0
        self._unready: dict[Ref, datetime] = {}

    def _job(self, number: int) -> Object:
        draw = self.random
        refs = draw.sample(SILOS, draw.choice((1, 2, 2, 3)))
        made = manifest(refs, startDeadline=draw.choice(("40s", "1m", "3m")))
        if draw.random() < 0.3:
            made["spec"]["priority"] = draw.randint(-1, 2)
        if len(refs) > 1 and draw.random() < 0.2:
            made["spec"]["participation"] = {"minSilos": len(refs) - 1}
        made["metadata"]["name"] = f"job-{number}"
        return made

    def _happenings(self) -> Iterator[Happening]:
        draw = self.random
        together = draw.random() < 0.5
        for job in self.jobs:
            yield Happening(0.0 if together else draw.uniform(0, UNREST_SECONDS / 2), "job", ref_of(job).name)
        for _ in range(draw.randint(0, 3)):
            name = draw.choice(SILOS).namespace
            yield Happening(draw.uniform(20, UNREST_SECONDS), "drain", name, draw.uniform(10, 300))
        for _ in range(draw.randint(0, 3)):
            yield Happening(draw.uniform(20, UNREST_SECONDS), "suspend", "", draw.uniform(30, 300))
        for _ in range(draw.randint(0, 2)):
            yield Happening(draw.uniform(5, UNREST_SECONDS), "restart")

    def _now(self) -> datetime:
        with suppress(RuntimeError):
            return START + timedelta(seconds=asyncio.get_running_loop().time())
        return START

    async def complete(self) -> None:
        """Run until every job that can run has ended; what is found wrong is raised."""
        operating = self._operate()
        try:
            while self.seconds < SECONDS:
                operating = await self._meet(operating)
                pause = 5.0 if self.seconds < UNREST_SECONDS else 10.0
                await asyncio.sleep(pause)
                self.seconds += pause
                self.world.step()
                assert not operating.done(), f"the operator ended: {operating.exception()!r}"
                self._check()
                if not self.happenings and not self._unfinished_jobs():
                    break
        finally:
            await _stop(operating)
        stuck = [f"{ref_of(job)}: {status_of(job)}" for job in self._unfinished_jobs()]
        assert not stuck, f"has not ended, though it can run: {stuck}"

    def _operate(self) -> asyncio.Future[Any]:
        store = Store()
        cluster = WriteThroughCluster(self.cluster, store)
        controllers: list[Reconciler] = [
            JobController(cluster, store, SETTINGS, self._now),
            SiloController(cluster, store, SETTINGS, self._now),
        ]
        return asyncio.ensure_future(Operator(cluster, store, controllers).run())

    async def _meet(self, operating: asyncio.Future[Any]) -> asyncio.Future[Any]:
        """Let happen what is due."""
        while self.happenings and self.happenings[0].second <= self.seconds:
            due = self.happenings.pop(0)
            if due.what == "job":
                self.cluster.put(next(job for job in self.jobs if ref_of(job).name == due.name))
            elif due.what == "drain":
                self.world.drain(due.name, due.seconds)
            elif due.what == "suspend":
                self.world.suspend_by_hand(due.seconds)
            else:
                await _stop(operating)
                operating = self._operate()
        return operating

    def _unfinished_jobs(self) -> list[Object]:
        """Jobs that have not ended and can run."""
        return [
            job
            for job in self.cluster.glance(FEDERATED_JOB)
            if status_of(job).get("phase") != "Complete" and self.world.feasible(job)
        ]

    def _check(self) -> None:
        """Every job that has started and whose agents do not all run says what it waits for, and until when."""
        now = self._now()
        for job in self.cluster.glance(FEDERATED_JOB):
            ref, status = ref_of(job), status_of(job)
            assert status.get("phase") != "Failed", f"{ref} failed: {condition(job, 'Failed')}"
            found = condition(job, "SilosReady")
            # With a quorum, a job goes on and waits for nobody.
            goes_on = "gang" not in status and "participation" in job["spec"]
            if found is None or found["status"] == "True" or found["reason"] == "Finished" or goes_on:
                self._unready.pop(ref, None)
                continue
            gang = status.get("gang") or {}
            self.put_off[ref.name] = max(self.put_off[ref.name], gang.get("attempt", 0))
            since = self._unready.setdefault(ref, now)
            if now - since > timedelta(seconds=PATIENCE_SECONDS):
                _check_word(ref, found, gang, now)


def _check_word(ref: Ref, found: Any, gang: Any, now: datetime) -> None:
    text = f"{ref}: {found['reason']}: {found['message']}; {gang}"
    assert found["message"], f"says nothing: {text}"
    until = gang.get("retryTime") or gang.get("deadline")
    late = timedelta(seconds=PATIENCE_SECONDS)
    assert until is None or parse_timestamp(until) + late > now, f"lets its time pass: {text}"
    said = until is not None or found["reason"] == "SuspendedBy"
    assert said or found["reason"] in ("Starting", "Evicted"), f"does not say until when: {text}"
    if found["reason"] == "GangIncomplete":
        assert gang.get("awaited"), f"names no silo: {text}"


def sign_offer_again(one: Object, ref: Ref) -> Object:
    """A Silo whose offer is signed as it is now."""
    return {**one, "status": published_offer(one, ref)}


async def _stop(operating: asyncio.Future[Any]) -> None:
    operating.cancel()
    with suppress(asyncio.CancelledError):
        await operating


def outcome(seed: int) -> tuple[str, float, int]:
    """What the seed brings to light, empty when all is well; when the last job ended; how often jobs were put off."""
    logging.disable(logging.CRITICAL)
    gc.disable()
    made, found = Competition(seed), ""
    try:
        run(made.complete())
    except Exception as error:
        again = f"python -m tests.unit.operator.competition --first {seed} --seeds 1"
        found = f"seed {seed}: {type(error).__name__}: {error}; again: {again}"
    finally:
        logging.disable(logging.NOTSET)
        gc.enable()
    return found, made.seconds, sum(made.put_off.values())


def main(argv: list[str] | None = None) -> int:
    """Let jobs compete, seed after seed; 1 when a seed fails."""
    parser = argparse.ArgumentParser(description="Let jobs compete for GPUs, seed after seed.")
    parser.add_argument("--seeds", type=int, default=1000, help="how many (default: 1000)")
    parser.add_argument("--first", type=int, default=fresh_seed(), help="the first (default: a fresh one)")
    parser.add_argument("--processes", type=int, help="how many at once (default: one for each core)")
    args = parser.parse_args(argv)
    seeds = range(args.first, min(args.first + args.seeds, MAX_SEED))
    print(f"seeds {seeds[0]} to {seeds[-1]}", flush=True)
    failed = attempts = 0
    longest = 0.0
    with ProcessPoolExecutor(args.processes) as pool:
        for found, seconds, put_off in pool.map(outcome, seeds):
            attempts += put_off
            longest = max(longest, seconds)
            if found:
                failed += 1
                print(found, flush=True)
    print(f"{len(seeds) - failed} of {len(seeds)} seeds end as they should")
    print(f"{attempts} times a job was put off; the last job ended after {longest / 60:.0f} minutes")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
