"""Ask why a method does what it does: its paper's pseudo-code, literally, under changed conditions.

    python -m benchmarks.literal scaffold --data /data
    python -m benchmarks.literal scaffold --variants base "FedAvg" --seeds 3 --data /data
    python -m benchmarks.literal scaffold --beside-job --variants base --data /data

Every finished run is a line of a file; called again, the same command runs what is missing. `--beside-job` runs a
variant's job by the simulation and the loop beside it, in float32 and float64, and prints how far apart their weights
are after each round. The page about the answers is written by hand, its picture by `--render`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import torch

from benchmarks.literal import pictures
from benchmarks.literal.federation import Federation
from benchmarks.literal.questions import Question, Record, questions, records
from benchmarks.literal.runs import Comparison, Loop, compare, loop_of, run
from benchmarks.tables.results import machine
from fedsilo.errors import FedsiloError

RESULTS_DIRECTORY = Path("docs/results")


def main() -> None:
    """Run what is asked for."""
    args = _arguments()
    question: Question = questions()[args.question]
    into: Path = args.into
    if args.render:
        done = [record for record in records(into / "causes.jsonl") if record.question == args.question]
        print(pictures.table(question, done))
        pictures.draw(question, done, into / f"causes-{args.question}.png")
        return
    titles, folder = args.variants or list(question.variants), args.data.resolve()
    for seed in range(args.seeds):
        for title in titles:
            loop, cell = loop_of(args.question, question.variants[title].loop), question.cell(title, seed)
            if args.beside_job:
                print(_lines(title, seed, compare(loop, cell, folder, args.every)), flush=True)
                continue
            path = into / "causes.jsonl"
            known = {(record.question, record.variant, record.seed) for record in records(path)}
            if (args.question, title, seed) not in known:
                dtype = torch.float64 if question.variants[title].float64 else torch.float32
                found = Federation.of(cell.manifest(folder, "cpu"), dtype)
                _record(args.question, title, seed, loop, found, path)


def _record(name: str, title: str, seed: int, loop: Loop[Any], of: Federation, path: Path) -> None:
    course = run(loop, of)
    Record(name, title, seed, course, machine()).append(path)
    end = f"{course.accuracies[-1]:.1%}" if course.lost is None else f"not finite in round {course.lost}"
    print(f"{title}, seed {seed}: {end} in {course.seconds:.0f} s", file=sys.stderr, flush=True)


def _lines(title: str, seed: int, found: Comparison) -> str:
    """A comparison as text: accuracies, and weights' largest differences from the job's after each round."""
    rows = {
        "job, accuracy": found.job,
        **{f"{name}, accuracy": values for name, values in found.free.items()},
        **{f"{name}, apart": values for name, values in found.apart.items()},
        "float32, apart from the job's state": found.anew,
    }
    text = "\n".join(
        f"  {name}: {' '.join(f'{value:.3g}' for value in values)}" for name, values in rows.items()
    )
    return f"{title}, seed {seed}\n{text}"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.literal",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("question", choices=list(questions()))
    parser.add_argument("--variants", nargs="+", metavar="TITLE", help="all by default")
    parser.add_argument("--seeds", type=int, default=2, metavar="N", help="seeds 0 to N - 1; 2 by default")
    parser.add_argument("--beside-job", action="store_true", help="compare the loop with the job's run")
    parser.add_argument(
        "--every", type=int, default=1, metavar="N", help="begin anew from the job's state in each N-th round"
    )
    parser.add_argument("--data", type=Path, default=Path("data"), metavar="FOLDER", help="of the datasets")
    parser.add_argument(
        "--into",
        type=Path,
        default=RESULTS_DIRECTORY,
        metavar="FOLDER",
        help=f"results; {RESULTS_DIRECTORY} by default",
    )
    parser.add_argument(
        "--render", action="store_true", help="print the table and draw the picture of what is on file"
    )
    args = parser.parse_args()
    if not args.render and not args.data.is_dir():
        parser.error(f"--data: {str(args.data)!r} is not a folder; name the one that the datasets lie in")
    return args


if __name__ == "__main__":
    try:
        main()
    except FedsiloError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)
