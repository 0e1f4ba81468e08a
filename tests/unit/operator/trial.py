"""The whole operator over a cluster in memory, from apply to model; a seed decides what goes wrong on the way.

A campaign over many seeds, in as many processes as the machine has cores:

    python -m tests.unit.operator.trial --seeds 5000

Every seed that fails is printed, with what was found; the same command repeats it with `--first SEED --seeds 1`.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from random import Random, SystemRandom
from typing import Any

from fedsilo.api.observed import Object
from fedsilo_operator.cluster.interface import ClusterError, ClusterUnavailable, Conflict, VersionExpired
from fedsilo_operator.job.controller import JobController
from fedsilo_operator.objects import (
    CLAIM,
    CONFIG_MAP,
    DISRUPTION_BUDGET,
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
from fedsilo_operator.runtime.store import Store, WriteThroughCluster
from fedsilo_operator.silo.controller import SiloController
from tests.operator_fakes.cluster import FakeCluster
from tests.operator_fakes.virtual import run
from tests.unit.operator.job.objects import (
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

CHILDREN = (
    *(SERVICE, SERVICE_ACCOUNT, ROLE, ROLE_BINDING, NETWORK_POLICY, CONFIG_MAP, JOB, SILO_AGENT),
    DISRUPTION_BUDGET,
)
FAULT_SECONDS, LAST_ROUND_SECONDS = 24, 160
"""How long things go wrong, from admission to the first rounds, and after which the last round may end."""

HANGS_SECONDS = 3000
"""Time after which a job that is not over hangs."""

MAX_SEED = 2**31


@dataclass
class Trial:
    """One run of the operator, from the seed.

    :param rate: part of the calls and of the lines of watches that go wrong while faults are made.
    :param transitions: status of each condition of the job, as it changed.
    """

    seed: int
    rate: float = 0.0
    deletions: int = 0
    crashes: int = 0
    transitions: dict[str, list[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        self.disturbed = False
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
        if not self.disturbed or self.random.random() >= self.rate:
            return None
        errors: list[ClusterError] = [ClusterUnavailable("500"), ClusterUnavailable("time-out")]
        errors += [VersionExpired("410")] if verb == "watch" else [Conflict("409")] if verb != "list" else []
        return self.random.choice(errors)

    async def complete(self) -> None:
        """Run the operator until the job is over and nothing moves any more."""
        store = Store()
        cluster = WriteThroughCluster(self.cluster, store)
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
        times = sorted(self.random.uniform(2, FAULT_SECONDS) for _ in range(self.deletions))
        second = 0
        while second < HANGS_SECONDS:
            while times and times[0] <= second:
                times.pop(0)
                self._delete_something()
            self.disturbed = self.rate > 0 and second < FAULT_SECONDS
            self.world.may_end = not self.rate or second >= LAST_ROUND_SECONDS
            pause = 2 if second < FAULT_SECONDS or self.world.may_end else 20
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
        if not self.disturbed:
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
    *("time", "signature"),
}
"""Fields that hold a time, a number that the API server counts, or an address that it chose; or are made of these."""


DEFAULTS = {"suspend": False}
"""What an API server writes where nothing is said: a Job that was suspended for a while says it itself."""


def _without_chance(value: Any) -> Any:
    if isinstance(value, dict):
        said = {key: item for key, item in value.items() if key not in CHANCE}
        if isinstance(said.get("proposal"), str):
            del said["proposal"]  # a digest over an address
        if "conditions" in said:
            # An API server merges conditions by type, and leaves them in the order in which they first came.
            said["conditions"] = sorted(said["conditions"], key=lambda item: str(item["type"]))
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


def trial(seed: int) -> Trial:
    """The trial that the seed stands for: how much goes wrong, and what."""
    draw = Random(seed)
    rate = draw.choice((0.02, 0.1, 0.3))
    return Trial(seed, rate=rate, deletions=draw.randrange(4), crashes=draw.randrange(3))


def undisturbed_outcome() -> dict[str, Any]:
    """What is there in the end when nothing goes wrong."""
    made = Trial(0)
    run(made.complete())
    assert made.job["status"]["phase"] == "Complete"
    return made.outcome()


def outcome_differences(made: Trial, wanted: dict[str, Any]) -> Iterator[str]:
    """Where a complete trial ended otherwise than undisturbed, and which conditions went back."""
    yield from differences(made.outcome(), wanted)
    straight = {"Complete": [["True"]], "Admitted": [["True"], ["False", "True"]], "Accepted": [["True"]]}
    for name, expected in straight.items():
        if made.transitions[name] not in expected:
            yield f"{name}: {made.transitions[name]}"


def failure(seed: int, wanted: dict[str, Any]) -> str:
    """What the seed brings to light, and how to see it again; empty when all is well."""
    # Thousands of messages that nobody reads, and searches for garbage that there is hardly any of.
    logging.disable(logging.CRITICAL)
    gc.disable()
    made = trial(seed)
    try:
        run(made.complete())
        found = "; ".join(outcome_differences(made, wanted))
    except Exception as error:
        found = f"{type(error).__name__}: {error}"
    finally:
        logging.disable(logging.NOTSET)
        gc.enable()
    again = f"python -m tests.unit.operator.trial --first {seed} --seeds 1"
    return f"seed {seed}: {found}; again: {again}" if found else ""


def fresh_seed() -> int:
    """A first seed that no run has had before."""
    return SystemRandom().randrange(1, MAX_SEED)


def main(argv: list[str] | None = None) -> int:
    """Try the operator seed after seed; 1 when a seed fails."""
    parser = argparse.ArgumentParser(description="Try the operator under faults, seed after seed.")
    parser.add_argument("--seeds", type=int, default=1000, help="how many (default: 1000)")
    parser.add_argument("--first", type=int, default=fresh_seed(), help="the first (default: a fresh one)")
    args = parser.parse_args(argv)
    seeds = range(args.first, args.first + args.seeds)
    print(f"seeds {seeds[0]} to {seeds[-1]}", flush=True)
    failed = 0
    with ProcessPoolExecutor() as pool:
        for found in pool.map(partial(failure, wanted=undisturbed_outcome()), seeds, chunksize=10):
            if found:
                failed += 1
                print(found, flush=True)
    print(f"{args.seeds - failed} of {args.seeds} seeds end as they should")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
