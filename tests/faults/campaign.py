"""Many faults, spread evenly over kinds and methods, and what came of them as a table."""

from __future__ import annotations

import itertools
import json
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.faults.fault import KINDS, NETWORK_CUT, Fault, Place, kinds_of
from tests.faults.laboratory import Laboratory, Undisturbed
from tests.faults.manifests import SILOS
from tests.faults.outcome import NAMED, NOT_REACHED, SAME, Violation

VIOLATED = "violated"

OUTCOMES = (SAME, NAMED, NOT_REACHED, VIOLATED)


@dataclass(frozen=True)
class Attempt:
    """A fault and what came of it.

    :param outcome: one of `OUTCOMES`.
    :param detail: of a violation.
    """

    fault: Fault
    outcome: str
    detail: str = ""

    def to_json(self) -> str:
        return json.dumps([json.loads(self.fault.to_json()), self.outcome, self.detail])

    @classmethod
    def from_json(cls, line: str) -> Attempt:
        fault, outcome, detail = json.loads(line)
        return cls(Fault.from_json(json.dumps(fault)), outcome, detail)


def faults(runs: Mapping[str, Undisturbed], seed: int) -> Iterator[Fault]:
    """Faults without end: every kind and method in turn, each at all its steps in random order before one repeats.

    :param runs: method -> its run without a fault.
    """
    chance = random.Random(seed)
    streams = [_stream(method, kind, run, chance) for kind in KINDS for method, run in runs.items()]
    while True:
        for stream in streams:
            yield next(stream)


def _stream(method: str, kind: str, run: Undisturbed, chance: random.Random) -> Iterator[Fault]:
    while True:
        if kind == NETWORK_CUT:
            places = [
                Place(f"{silo} guard", "network", chance.randint(1, run.passed // len(SILOS)))
                for silo in SILOS
            ]
        else:
            places = [place for place in run.places if kind in kinds_of(place)]
            chance.shuffle(places)
        for place in places:
            yield Fault(method, kind, place, chance.randrange(1 << 32))


def run_all(
    laboratories: Sequence[Laboratory], planned: Sequence[Fault], note: Callable[[Attempt], None]
) -> None:
    """Try every fault, as many at a time as there are laboratories.

    :param note: called with each attempt, by one thread at a time.
    """
    left, lock = iter(planned), threading.Lock()
    broken: list[BaseException] = []

    def work(laboratory: Laboratory) -> None:
        try:
            while not broken:
                with lock:
                    fault = next(left, None)
                if fault is None:
                    return
                attempt = attempt_of(laboratory, fault)
                with lock:
                    note(attempt)
        except BaseException as error:
            broken.append(error)

    threads = [threading.Thread(target=work, args=[laboratory]) for laboratory in laboratories]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if broken:
        raise broken[0]


def attempt_of(laboratory: Laboratory, fault: Fault) -> Attempt:
    """Try one fault."""
    try:
        return Attempt(fault, laboratory.attempt(fault))
    except Violation as violation:
        return Attempt(fault, VIOLATED, str(violation))


def planned(runs: Mapping[str, Undisturbed], count: int, seed: int) -> list[Fault]:
    """The first faults of a seed."""
    return list(itertools.islice(faults(runs, seed), count))


def table(attempts: Sequence[Attempt], methods: Sequence[str]) -> str:
    """What came of the faults of each kind, and of how many for each method, in Markdown.

    Faults whose step was not reached count only in their own column.
    """
    head = [
        "fault",
        *methods,
        "same model and states",
        "error that names the file",
        "violated",
        "not reached",
    ]
    lines = [_row(head), _row(["---", *["---:"] * (len(head) - 1)])]
    for kind in (*KINDS, ""):
        ours = [attempt for attempt in attempts if kind in ("", attempt.fault.kind)]
        reached = [attempt for attempt in ours if attempt.outcome != NOT_REACHED]
        by_method = Counter(attempt.fault.method for attempt in reached)
        by_outcome = Counter(attempt.outcome for attempt in ours)
        cells = [by_method[method] for method in methods]
        cells += [by_outcome[outcome] for outcome in (SAME, NAMED, VIOLATED, NOT_REACHED)]
        name = f"{kind}: {KINDS[kind]}" if kind else "all"
        lines.append(_row([name, *map(str, cells)]))
    return "\n".join(lines)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def read_log(path: Path) -> list[Attempt]:
    """Attempts of an earlier, interrupted campaign; a line that the interruption cut off is left out."""
    if not path.exists():
        return []
    whole = path.read_text().rpartition("\n")[0]
    return [Attempt.from_json(line) for line in whole.splitlines()]
