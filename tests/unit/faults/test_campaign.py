"""A campaign tries every kind at every method alike, repeats itself, and says what came of it."""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path

from fedsilo.files.durable import DiskStep
from tests.faults.campaign import VIOLATED_OUTCOME, Attempt, faults, planned_faults, read_log, table
from tests.faults.fault import KINDS, Fault, Place, kinds_of, step_name
from tests.faults.laboratory import UndisturbedRun
from tests.faults.outcome import NAMED_ERROR, NOT_REACHED, SAME

PLACES = [
    Place(role, step, occurrence)
    for role in ("aggregator", "north guard")
    for step in ("sync *.tmp", "rename *.tmp -> state.json", "append open/r1.part")
    for occurrence in (1, 2)
]
RUNS = {method: UndisturbedRun(PLACES, {}, 1000) for method in ("fedavg", "fedphp")}


def test_kinds_and_methods_come_in_turn() -> None:
    first = list(itertools.islice(faults(RUNS, seed=1), 3 * len(KINDS) * len(RUNS)))
    assert Counter((fault.kind, fault.method) for fault in first) == Counter(
        {(kind, method): 3 for kind in KINDS for method in RUNS}
    )


def test_a_step_comes_again_only_after_all_others_and_with_another_seed() -> None:
    ours = (fault for fault in faults(RUNS, seed=1) if (fault.method, fault.kind) == ("fedavg", "kill-after"))
    drawn = list(itertools.islice(ours, 2 * len(PLACES)))
    assert {fault.place for fault in drawn[: len(PLACES)]} == set(PLACES)
    assert len(set(drawn)) == 2 * len(PLACES)


def test_the_same_seed_draws_the_same_though_a_run_took_another_step() -> None:
    more = [*PLACES, Place("aggregator", "sync elapsed.json", 1)]
    again = {method: UndisturbedRun(more, {}, 1000) for method in RUNS}
    known = planned_faults(RUNS, 60, seed=1)
    new = set(planned_faults(again, 66, seed=1)) - set(known)
    assert {fault.place.step for fault in new if fault.place in more[-1:]} == {"sync elapsed.json"}
    assert planned_faults(RUNS, 60, seed=2) != known


def test_what_was_tried_is_not_tried_again(tmp_path: Path) -> None:
    first = planned_faults(RUNS, 10, seed=1)
    log = tmp_path / "log"
    log.write_text("".join(Attempt(fault, SAME).to_json() + "\n" for fault in first[:4]) + '["cut o')
    done = {attempt.fault for attempt in read_log(log)}
    assert done == set(first[:4])
    assert planned_faults(RUNS, 10, 1, done) == first[4:]


def test_the_command_of_a_fault_names_its_step() -> None:
    fault = Fault("fedavg", "torn-write", Place("north guard", "rename a/*.tmp -> a/b", 2), 7)
    assert fault.command.endswith(
        "--method fedavg --kind torn-write --step 'north guard: rename a/*.tmp -> a/b #2' --seed 7"
    )
    assert Place.parse("north guard: rename a/*.tmp -> a/b #2") == fault.place


def test_names_of_steps_hold_nothing_random(tmp_path: Path) -> None:
    step = DiskStep("rename", tmp_path / "blobs" / ".0123456789abcdef.tmp", tmp_path / "blobs" / ("ab" * 32))
    assert step_name(step, tmp_path) == "rename blobs/*.tmp -> blobs/<digest>"
    assert step_name(DiskStep("sync-directory", tmp_path), tmp_path) == "sync-directory ."


def test_only_what_can_be_done_to_a_step_is_tried() -> None:
    trainers = Place("north trainer", "unlink drop/failed.json", 1)
    assert set(kinds_of(trainers)) == {"kill-before", "kill-after", "io-error", "power-cut"}
    log = Place("north guard", "sync audit/log.jsonl", 1)
    assert {"torn-write", "flipped-bit", "full-disk", "clock-jump"} <= set(kinds_of(log))


def test_the_table_counts_what_was_reached_by_kind_method_and_outcome() -> None:
    def attempt(method: str, outcome: str) -> Attempt:
        return Attempt(Fault(method, "flipped-bit", PLACES[0], 1), outcome)

    attempts = [
        attempt("fedavg", SAME),
        attempt("fedavg", NAMED_ERROR),
        attempt("fedphp", VIOLATED_OUTCOME),
        attempt("fedphp", NOT_REACHED),
    ]
    rows = table(attempts, ["fedavg", "fedphp"]).splitlines()
    (flipped,) = [row for row in rows if row.startswith("| flipped-bit")]
    assert flipped.endswith("| 2 | 1 | 1 | 1 | 1 | 1 |")
    assert rows[-1] == "| all | 2 | 1 | 1 | 1 | 1 | 1 |"
