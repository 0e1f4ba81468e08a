"""Campaign of faults at every durable step of real processes, and at their clocks and network.

    python -m tests.faults --count 600                  # kinds and methods in turn, a table at the end
    python -m tests.faults --count 600 --log FILE       # the same, which can be interrupted and gone on with
    python -m tests.faults --method fedavg --kind power-cut --step 'aggregator: rename ...' --seed 7

The last form repeats one fault; it is printed for every fault that had an effect that it must not have.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import secrets
import sys
import tempfile
from pathlib import Path

from tests.faults.campaign import (
    VIOLATED_OUTCOME,
    Attempt,
    attempt_of,
    planned_faults,
    read_log,
    run_all,
    table,
)
from tests.faults.fault import KINDS, Fault, Place
from tests.faults.laboratory import Laboratory
from tests.faults.manifests import METHODS
from tests.faults.report import report

PROGRESS = 25
"""Faults between two lines of progress."""


def main() -> int:
    """Run the campaign of faults; 1 when a fault had an effect that it must not have."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=100, help="faults to try")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1 << 32))
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--method", choices=METHODS, help="only this one")
    parser.add_argument("--kind", choices=KINDS, help="with --step: this kind")
    parser.add_argument("--step", type=Place.parse, help="with --method and --kind: this fault, once")
    parser.add_argument("--log", type=Path, help="one line per fault; those in it are not tried again")
    parser.add_argument("--results", type=Path, help="page to write the table into")
    parser.add_argument("--directory", type=Path, help="for the runs (default: a temporary one)")
    args = parser.parse_args()
    with contextlib.ExitStack() as stack:
        directory = args.directory or Path(tempfile.mkdtemp(prefix="faults."))
        if args.step is not None:
            if not (args.method and args.kind):
                parser.error("--step needs --method and --kind")
            laboratory = stack.enter_context(Laboratory.open_laboratory(directory / "runs"))
            attempt = attempt_of(laboratory, Fault(args.method, args.kind, args.step, args.seed))
            print(f"{attempt.outcome} {attempt.detail}")
            return int(attempt.outcome == VIOLATED_OUTCOME)
        laboratories = [
            stack.enter_context(Laboratory.open_laboratory(directory / f"worker-{number}"))
            for number in range(args.workers)
        ]
        attempts = campaign(args, laboratories)
    methods = [args.method] if args.method else list(METHODS)
    print(table(attempts, methods))
    if args.results is not None:
        args.results.write_text(report(attempts, methods, args.count, args.seed))
    return int(any(attempt.outcome == VIOLATED_OUTCOME for attempt in attempts))


def campaign(args: argparse.Namespace, laboratories: list[Laboratory]) -> list[Attempt]:
    """Try faults until there are as many as asked for."""
    print(f"seed {args.seed}", flush=True)
    runs = {name: laboratories[0].undisturbed_run(name) for name in METHODS if args.method in (None, name)}
    for name, run in runs.items():
        print(f"{name}: {len(run.places)} durable steps, {run.passed} bytes on the network", flush=True)
    attempts = read_log(args.log) if args.log else []
    done = {attempt.fault for attempt in attempts}
    faults = planned_faults(runs, args.count, args.seed, done)

    def note(attempt: Attempt) -> None:
        attempts.append(attempt)
        if args.log:
            with args.log.open("a") as log:
                log.write(attempt.to_json() + "\n")
        if attempt.outcome == VIOLATED_OUTCOME:
            print(f"{attempt.fault.command}\n    {attempt.detail}", flush=True)
        if len(attempts) % PROGRESS == 0:
            violated = sum(attempt.outcome == VIOLATED_OUTCOME for attempt in attempts)
            print(f"{len(attempts)} of {args.count}, {violated} violated", flush=True)

    run_all(laboratories, faults, note)
    return attempts


if __name__ == "__main__":
    sys.exit(main())
