"""Reproduce a table of a paper, or some of its cells.

    python -m benchmarks.tables fedconcat --scale reduced --seeds 3
    python -m benchmarks.tables creff --rows FedAvg CReFF --columns cifar10-100 --device cuda --data /data

Every cell is a FederatedJob, which the simulation runs in this process. What is finished is on file, a JSON line for
each cell and seed; called again, the same command goes on with the rest, with the open cell where its last complete
round was. Ctrl-C loses no more than the open round, nor does --minutes, after which the command stops by itself.
Beside the lines stand a page with the paper's figures (.md) and learning curves (.png, needs `fedsilo[bench]`).
"""

from __future__ import annotations

import argparse
import shlex
import signal
import sys
import time
from pathlib import Path

from benchmarks.tables import curves, definition, rendering, results, scatter
from benchmarks.tables.cells import cells
from benchmarks.tables.running import Place, run_all

RESULTS_DIRECTORY = Path("docs/results/tables")
OPEN = "open"
"""Folder below it of the cells that are not finished; git ignores it."""


def main() -> int:
    """Run what is asked for; the exit status is 130 after Ctrl-C."""
    args = _arguments()
    chosen = definition.choose(args.table, args.scale, args.rows, args.columns)
    asked = cells(chosen, args.seeds)
    # One file for all tables of a paper: tables that measure the same job share its run.
    path = args.into / f"{chosen.name.rpartition('-')[0]}-{args.scale}.jsonl"
    until = None if args.minutes is None else time.monotonic() + 60 * args.minutes
    place = Place(args.data.resolve(), args.device, args.workers, _command(), args.into / OPEN, until)
    # A stop by `kill` is one by Ctrl-C: the workers end, the page is written.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    why: dict[tuple[str, str], str] = {}
    stopped = False
    try:
        if not args.render:
            why = run_all(chosen, asked, path, place)
    except KeyboardInterrupt:
        stopped = True
        print("\nstopped; the same command goes on from here", file=sys.stderr)
    _render(args.table, args.scale, args.seeds, path, why)
    return 130 if stopped else 0


def _render(
    name: str, scale: definition.Scale, seeds: int, path: Path, why: dict[tuple[str, str], str]
) -> None:
    """Page and curves of everything on file, and not only of what was asked for now."""
    whole = definition.choose(name, scale)
    runs = results.read(path)
    seeds = max([seeds, *(run.seed + 1 for run in runs)])
    asked = cells(whole, seeds)
    found = results.of(whole, asked, runs)
    reasons = {(cell.row, cell.column): reason for cell in asked if (reason := cell.missing_reason())}
    reasons |= why
    path.parent.mkdir(parents=True, exist_ok=True)
    to = path.parent / f"{whole.name}-{scale}.md"
    picture = to.with_suffix(".png")
    draw = scatter.draw if whole.table.wide else curves.draw
    drawn = bool(found) and draw(whole, found, picture)
    page = rendering.page(whole, found, reasons, picture.name if drawn else None)
    to.write_text(page, encoding="utf-8")
    print(to)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.tables",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("table", help=f"one of {', '.join(definition.names())}; fedconcat means fedconcat-1")
    parser.add_argument("--rows", nargs="+", metavar="ROW", help="methods; all by default")
    parser.add_argument("--columns", nargs="+", metavar="COLUMN", help="all by default")
    parser.add_argument("--scale", choices=("full", "reduced"), default="reduced")
    parser.add_argument("--seeds", type=int, default=3, metavar="N", help="seeds 0 to N - 1; 3 by default")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--data", type=Path, default=Path("data"), metavar="FOLDER", help="of the datasets")
    parser.add_argument("--workers", type=int, default=0, metavar="N", help="processes that share the silos")
    parser.add_argument(
        "--into",
        type=Path,
        default=RESULTS_DIRECTORY,
        metavar="FOLDER",
        help=f"results; {RESULTS_DIRECTORY} by default",
    )
    parser.add_argument(
        "--minutes", type=float, metavar="N", help="stop after so long, and go on another time"
    )
    parser.add_argument("--render", action="store_true", help="write page and curves only; run nothing")
    args = parser.parse_args()
    if args.seeds < 1:
        parser.error(f"--seeds: {args.seeds}: at least one")
    if args.minutes is not None and args.minutes <= 0:
        parser.error(f"--minutes: {args.minutes:g}: above 0")
    if not args.render and not args.data.is_dir():
        parser.error(f"--data: {str(args.data)!r} is not a folder; name the one that the datasets lie in")
    return args


def _command() -> str:
    """The command as a person would type it, without the names of folders."""
    command = ["python", "-m", "benchmarks.tables"]
    hidden = False
    for word in sys.argv[1:]:
        if hidden:
            hidden = False
            command.append("FOLDER")
            continue
        hidden = word in ("--data", "--into")
        command.append(word)
    return shlex.join(command)


if __name__ == "__main__":
    sys.exit(main())
