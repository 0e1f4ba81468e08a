"""`fedsilo sweep` runs a manifest with every combination of some values, each with several seeds, in this process."""

from __future__ import annotations

import argparse
import json
import sys
from functools import partial
from pathlib import Path

from fedsilo.cli.columns import columns
from fedsilo.cli.run import count
from fedsilo.validation import load_manifest


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the job, the values of its fields and the directory to the arguments of `fedsilo sweep`."""
    parser.add_argument("-f", "--file", type=Path, required=True, help="the manifest (YAML)")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="FIELD=VALUE,...",
        dest="settings",
        help="a field of the job and its values, as in spec.training.batchSize=16,32; several give every combination",
    )
    parser.add_argument(
        "--seeds",
        type=count,
        default=1,
        metavar="N",
        help="runs of each combination, with spec.training.seed from the manifest's on (default: 1)",
    )
    parser.add_argument(
        "--partition-seeds",
        type=count,
        default=1,
        metavar="N",
        help="with each of these, seeds of the silos' partitions, from the manifest's on (default: 1)",
    )
    parser.add_argument("--workdir", type=Path, help="directory of the sweep (default: runs/JOB-sweep-TIME)")
    parser.add_argument(
        "--resume", action="store_true", help="go on with the sweep that --workdir holds; complete runs stay"
    )
    parser.add_argument("--json", action="store_true", help="end with one JSON object on standard output")
    parser.add_argument(
        "--workers",
        type=count,
        default=0,
        metavar="N",
        help="share the silos' work of each run between N processes; the models stay the same",
    )
    parser.add_argument(
        "--batch-clients",
        type=count,
        default=0,
        metavar="K",
        help="train K silos at once, where the method permits it; equal up to rounding",
    )


def run(args: argparse.Namespace) -> int:
    """Run every combination of the grid; a run that fails does not end it.

    Exit codes are those of `fedsilo.errors`, that of the first run that failed, and 130 and 143 after SIGINT and
    SIGTERM.
    """
    from fedsilo.local.display import display_for
    from fedsilo.local.stopping import StopRequest, stopping
    from fedsilo.local.sweep.grid import grid, parse_setting
    from fedsilo.local.sweep.results import SweepResult, require_plots, table, write_results
    from fedsilo.local.sweep.runs import SweepDirectory, run_grid
    from fedsilo.local.workdir import default_directory
    from fedsilo.simulation.execution import ExecutionPlan

    settings = [parse_setting(text) for text in args.settings]
    manifest = load_manifest(args.file)
    points = grid(manifest, settings, args.seeds, args.partition_seeds)
    require_plots()
    base: Path = args.workdir or default_directory(f"{manifest.job.metadata.name}-sweep")
    directory = SweepDirectory(base.resolve())
    stream = sys.stderr if args.json else sys.stdout
    say = partial(print, file=stream, flush=True)
    execution = ExecutionPlan(args.workers, args.batch_clients)
    try:
        with stopping() as check, directory.hold_directory(points, args.resume):
            root = args.file.resolve().parent
            runs = run_grid(points, directory, root, display_for(stream), execution, say, check)
            write_results(directory.root, runs)
    except StopRequest as stopped:
        print(f"fedsilo: {stopped}; go on with --workdir {base} --resume", file=sys.stderr)
        return stopped.exit_code
    result = SweepResult(directory.root, runs)
    if args.json:
        found = {"directory": str(directory.root), "runs": result.rows(), "means": result.means()}
        print(json.dumps(found, allow_nan=False))
    else:
        rows = table(runs)
        print(columns(rows, right=range(len(rows[0]))))
        print(f"plot  {result.plot}")
    return next((run.exit_code for run in runs if not run.succeeded), 0)
