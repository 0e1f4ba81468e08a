"""Seconds, CPU, memory and disk of a round of silos without training, beside three floors of raw sockets.

    python -m benchmarks.transport --silos 8 --megabytes 100
    python -m benchmarks.transport --silos 128 --megabytes 10 --rounds 20 --processes 4 --pairs 1
    python -m benchmarks.transport --silos 8 --megabytes 100 --digest blake3
    python -m benchmarks.transport --silos 8 --megabytes 100 --waterfall    # the steps of one round
    python -m benchmarks.transport --scaling                                # all that was measured, as a picture

A run of each of four systems makes a pair, one after another, the next pair in reverse: `fedsilo` (real aggregator
and guards over HTTPS with files, trainers that answer at once), and the floors of `benchmarks/transport/floors.py`.
Every process is one of its own unless --processes says otherwise. A round is the time between two lines of the
aggregator's history; the first and the last one of a run do not count. What was measured is added to
INTO/<silos>x<megabytes>.jsonl, or with BLAKE3 to INTO/<silos>x<megabytes>-blake3.jsonl, and drawn beside it. Files are
written below TMPDIR: of a memory file system, memory grows by them. Run it on Linux.
"""

from __future__ import annotations

import argparse
import shlex
import signal
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.tables.results import machine
from benchmarks.transport import results
from benchmarks.transport.federation import FEDSILO, SYSTEMS, Load, RunMeasurement, run_fedsilo, run_floor
from benchmarks.transport.model import SentModel
from benchmarks.transport.pictures import draw_roles, draw_scaling, draw_steps
from benchmarks.transport.steps import WATERFALL
from benchmarks.transport.tables import Pair, page
from benchmarks.transport.waterfall import steps_of_round, steps_table
from fedsilo.files.digests import ALGORITHMS, SHA256
from fedsilo.process import TERMINATED_EXIT_CODE


def main(argv: list[str] | None = None) -> None:
    """Measure what is asked for, and print the tables."""
    signal.signal(
        signal.SIGTERM, lambda *_: sys.exit(TERMINATED_EXIT_CODE)
    )  # so that folders and processes go
    args = _arguments(argv)
    if args.scaling:
        found = [results.read(path) for path in sorted(args.into.glob("*.jsonl"))]
        draw_scaling(found, args.into / "scaling.png")
        return
    model = SentModel.of(args.megabytes, args.layers)
    load = Load(model, args.silos, args.rounds, min(args.processes or args.silos, args.silos), args.digest)
    place = args.into / results.name_of(load)
    if args.waterfall:
        with tempfile.TemporaryDirectory(prefix="fedsilo-transport-") as folder:
            run, records = run_fedsilo(load, Path(folder), WATERFALL)
        steps = steps_of_round(records, run)
        print(steps_table(steps, run))
        draw_steps(steps, place.with_name(f"{place.name}-waterfall.png"))
        return
    facts = {
        "command": shlex.join(["python", "-m", "benchmarks.transport", *(argv or sys.argv[1:])]),
        "machine": machine(),
        "date": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
    }
    pairs: list[Pair] = []
    for number in range(args.pairs):
        pair = {}
        for system in SYSTEMS if number % 2 == 0 else reversed(SYSTEMS):
            pair[system] = run = measure(system, load)
            results.append(place.with_name(f"{place.name}.jsonl"), load, number, run, facts)
        pairs.append(pair)
        print(f"pair {number + 1} of {args.pairs}\n\n{page(load, [pair])}\n", file=sys.stderr, flush=True)
    print(page(load, pairs))
    draw_roles(load, pairs, place.with_name(f"{place.name}.png"))


def measure(system: str, load: Load) -> RunMeasurement:
    """Run one system under the load once."""
    with tempfile.TemporaryDirectory(prefix="fedsilo-transport-") as folder:
        if system == FEDSILO:
            return run_fedsilo(load, Path(folder))[0]
        return run_floor(system, load, Path(folder))


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.transport",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--silos", type=int, default=8)
    parser.add_argument("--megabytes", type=float, default=100, help="of the model")
    parser.add_argument("--layers", type=int, default=8, help="of the model, of equal size: tensors")
    parser.add_argument("--rounds", type=int, default=4, help="of a run, that count")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument(
        "--processes", type=int, help="that all guards share, and all trainers (default: one for each)"
    )
    parser.add_argument("--digest", choices=ALGORITHMS, default=SHA256, help="hash of what is large")
    parser.add_argument(
        "--into", type=Path, default=Path("runs/transport"), help="folder of what was measured"
    )
    parser.add_argument("--waterfall", action="store_true", help="record the steps of a round instead")
    parser.add_argument(
        "--scaling", action="store_true", help="draw what the folder has, against silos and size"
    )
    return parser.parse_args(argv)


if __name__ == "__main__":
    main()
