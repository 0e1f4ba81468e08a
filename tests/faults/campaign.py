"""Many faults, spread evenly over kinds and methods, and what came of them as a table."""

from __future__ import annotations

import hashlib
import itertools
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.faults.fault import KINDS, NETWORK_CUT, Fault, Place, kinds_of
from tests.faults.laboratory import Laboratory, UndisturbedRun
from tests.faults.manifests import silos_of
from tests.faults.outcome import NAMED_ERROR, NOT_REACHED, SAME, Violation

VIOLATED_OUTCOME = "violated"

OUTCOMES = (SAME, NAMED_ERROR, NOT_REACHED, VIOLATED_OUTCOME)


@dataclass(frozen=True)
class Attempt:
    """A fault and what came of it.

    :param outcome: one of `OUTCOMES`.
    :param detail: of a violation.
    :param seconds: that it took.
    """

    fault: Fault
    outcome: str
    detail: str = ""
    seconds: float = 0.0

    def to_json(self) -> str:
        return json.dumps([json.loads(self.fault.to_json()), self.outcome, self.detail, self.seconds])

    @classmethod
    def from_json(cls, line: str) -> Attempt:
        fault, outcome, detail, seconds = json.loads(line)
        return cls(Fault.from_json(json.dumps(fault)), outcome, detail, seconds)


def faults(runs: Mapping[str, UndisturbedRun], seed: int) -> Iterator[Fault]:
    """Draw faults without end: every kind and method in turn, each at all its steps in random order before one repeats.

    :param runs: method -> its run without a fault.
    """
    streams = [_stream(method, kind, run, seed) for kind in KINDS for method, run in runs.items()]
    while True:
        for stream in streams:
            yield next(stream)


def _stream(method: str, kind: str, run: UndisturbedRun, seed: int) -> Iterator[Fault]:
    """The order follows from each place by itself, for no two runs take exactly the same steps."""
    for turn in itertools.count():

        def number(of: object, turn: int = turn) -> int:
            text = f"{seed} {turn} {method} {kind} {of}"
            return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4])

        if kind == NETWORK_CUT:
            silos = silos_of(method)
            bytes_of_a_silo = run.passed // len(silos)
            places = [Place(f"{silo} guard", "network", 1 + number(silo) % bytes_of_a_silo) for silo in silos]
        else:
            places = sorted({place for place in run.places if kind in kinds_of(place)}, key=number)
        for place in places:
            yield Fault(method, kind, place, number(f"seed {place}"))


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
    """Try one fault and note its outcome."""
    began, detail = time.monotonic(), ""
    try:
        outcome = laboratory.attempt(fault)
    except Violation as violation:
        outcome, detail = VIOLATED_OUTCOME, str(violation)
    return Attempt(fault, outcome, detail, round(time.monotonic() - began, 3))


def planned_faults(
    runs: Mapping[str, UndisturbedRun], count: int, seed: int, done: Collection[Fault] = ()
) -> list[Fault]:
    """The first faults of a seed that were not tried yet; with those that were, as many as `count`."""
    left = (fault for fault in faults(runs, seed) if fault not in done)
    return list(itertools.islice(left, max(0, count - len(done))))


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
        cells += [by_outcome[outcome] for outcome in (SAME, NAMED_ERROR, VIOLATED_OUTCOME, NOT_REACHED)]
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
