"""Replies of a private job that name 2,000 mechanisms, 500,000 lists, none, twice the plan, and figures that are NaN,
infinite, negative, denormal, of 4,000 digits, 10^18 or text; while another process asks for the dataset's ledger.

By: a hostile trainer, which writes into the drop, in a silo with a privacy budget.

Must: refused, for they are not the plan of the job; nothing is charged, and nobody waits for the ledger.
"""

from __future__ import annotations

import fcntl
import threading
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, Self

from attacks.cost import MB
from attacks.live_guard import LiveGuard
from attacks.programs import NotRefusedError
from attacks.run import MOST_MEMORY
from fedsilo.methods import registry
from fedsilo.methods.differential_privacy import planned_mechanisms

RUNS_ONCE = True
SAMPLES = 100
JOB = {
    "privacy": {"differentialPrivacy": {"unit": "example", "epsilon": 3.0, "delta": 1e-3}},
    "evaluation": {"testDataset": "test"},
    "aggregator": {"datasets": [{"name": "test", "loader": "sklearn:digits"}]},
}
POLICY = {"privacyBudget": [{"dataset": "digits", "epsilon": 8.0, "delta": 1e-3}]}
ODD_VALUES: tuple[Any, ...] = (
    float("nan"),
    float("inf"),
    -1.0,
    0,
    5e-324,
    1.7e308,
    10**3999,
    10**18,
    True,
    "much",
    [[]],
)

LONGEST_SECONDS = 0.5
"""Time for which the ledger may be locked at once; today's machines read thousands of lines in it."""


def attack(target: LiveGuard) -> None:
    with TemporaryDirectory() as folder:
        ledgers = Path(folder) / "ledgers"
        arguments = ("--ledgers", str(ledgers))
        guard = LiveGuard(Path(folder) / "run", more=arguments, policy=POLICY, **JOB)
        try:
            _attack(guard, ledgers)
        finally:
            guard.close()
        for what, times in guard.answers.items():
            target.note(what, times)


def _attack(guard: LiveGuard, ledgers: Path) -> None:
    spec = guard.aggregator.site.federation.job.spec
    plan = [each.to_dict() for each in planned_mechanisms(registry.bind(spec), "train", SAMPLES)]
    _answer(guard, plan)
    charged, before, meter = _charges(ledgers), guard.meter().read().peak, guard.meter()
    with _Waiting(ledgers) as waiting:
        for mechanisms in _hostile_plans(plan):
            task = guard.name()
            guard.aggregator.drop(task, samples=SAMPLES, metrics={}, mechanisms=mechanisms)
            guard.expect_drop_refused(task, "reply: mechanism")
    grown = meter.read().peak - before
    if _charges(ledgers) != charged:
        raise NotRefusedError("something was charged")
    if waiting.longest > LONGEST_SECONDS:
        raise NotRefusedError(f"the ledger was locked for {waiting.longest:.1f} s")
    if grown > MOST_MEMORY:
        raise NotRefusedError(f"the guard has grown by {grown / MB:.0f} MB")
    _answer(guard, plan)
    if fault := guard.defects():
        raise NotRefusedError(fault)
    guard.note(f"longest wait for the ledger {1000 * waiting.longest:.0f} ms, {grown / MB:.0f} MB more")


def _answer(guard: LiveGuard, plan: list[dict[str, Any]]) -> None:
    """What an honest trainer does."""
    task = guard.name()
    guard.aggregator.drop(task, samples=SAMPLES, metrics={}, mechanisms=plan)
    guard.aggregator.offer(guard.aggregator.task(task))
    guard.aggregator.wait_acknowledged(task)


def _charges(ledgers: Path) -> int:
    return (ledgers / "digits.jsonl").read_bytes().count(b'"charge"')


def _hostile_plans(plan: list[dict[str, Any]]) -> list[Any]:
    (planned,) = plan
    return [
        [planned | {"noiseMultiplier": 1 + number / 1000} for number in range(2000)],
        [[]] * 500_000,
        [],
        plan * 2,
        {"noiseMultiplier": 1},
        *([planned | {name: value}] for name in planned for value in ODD_VALUES),
    ]


class _Waiting:
    """Asks for the lock of the dataset's ledger again and again, and notes how long it waited.

    :ivar longest: seconds of the longest wait.
    """

    def __init__(self, ledgers: Path) -> None:
        self._path, self.longest = ledgers / "digits.lock", 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._wait)

    def _wait(self) -> None:
        while not self._over.wait(0.001):
            with self._path.open("a") as file:
                began = time.monotonic()
                fcntl.flock(file, fcntl.LOCK_EX)
                self.longest = max(self.longest, time.monotonic() - began)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()
