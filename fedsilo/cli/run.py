"""`fedsilo run` runs manifests on this machine, without a cluster."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedsilo.api.figures import finite_figures
from fedsilo.api.loading import JobManifest
from fedsilo.errors import ManifestInvalid
from fedsilo.files.durable import write_durably
from fedsilo.validation import load_manifest

if TYPE_CHECKING:
    from fedsilo.local.child_processes import ForkServerClient
    from fedsilo.local.dashboard import Dashboard
    from fedsilo.local.progress import RunOutcome
    from fedsilo.local.workdir import RunDirectory


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what is run, where, and how it is shown to the arguments of `fedsilo run`."""
    parser.add_argument(
        "-f",
        "--file",
        type=Path,
        action="append",
        required=True,
        help="the manifest (YAML); several, each with its own -f, are run in turn and compared",
    )
    parser.add_argument(
        "--workdir",
        type=Path,
        help="directory of the run (default: runs/JOB-TIME); of several, each has its own in it",
    )
    parser.add_argument("--resume", action="store_true", help="go on with the run that --workdir holds")
    parser.add_argument(
        "--json", action="store_true", help="end with one JSON object on standard output for each job"
    )
    parser.add_argument(
        "--alone",
        action="store_true",
        help="also train each silo of the first manifest by itself, and one model on all their data, to compare them",
    )
    parser.add_argument(
        "--in-process",
        action="store_true",
        help="run all silos in this process, without transport and signatures: the same model, sooner; not resumable",
    )
    parser.add_argument(
        "--workers",
        type=count,
        default=0,
        metavar="N",
        help="with --in-process: share the silos' work between N processes; the model stays the same",
    )
    parser.add_argument(
        "--batch-clients",
        type=count,
        default=0,
        metavar="K",
        help="with --in-process: train K silos at once, where the method permits it; equal up to rounding",
    )
    parser.add_argument(
        "--dashboard",
        action="store_true",
        help="serve a page on this machine that shows the jobs while they run; its address is printed",
    )


def run(args: argparse.Namespace) -> int:
    """Run the jobs, up to the first that fails.

    Exit codes are those of `fedsilo.errors`, 130 and 143 after SIGINT and SIGTERM.
    """
    if (args.workers or args.batch_clients) and not args.in_process:
        option = "--workers" if args.workers else "--batch-clients"
        raise ManifestInvalid(f"{option}: is for a run with --in-process; add that, or leave this out")
    if args.in_process and args.resume:
        raise ManifestInvalid("--resume: a run with --in-process cannot be resumed; leave one of the two out")
    from fedsilo.local.workdir import default_directory

    with ExitStack() as entered:
        server = None
        if args.alone or not args.in_process:
            from fedsilo.local.child_processes import ForkServerClient

            # It warms up while the manifests are checked.
            server = entered.enter_context(ForkServerClient(str(args.workdir or args.file[0])))
        federations = [load_manifest(file) for file in args.file]
        name = federations[0].job.metadata.name
        base: Path = args.workdir or default_directory(name)
        directories = list(_directories(base, federations))
        dashboard = _dashboard(args, federations, entered)
        return _run_in_turn(args, base, federations, directories, server, dashboard)


def _run_in_turn(
    args: argparse.Namespace,
    base: Path,
    federations: Sequence[JobManifest],
    directories: Sequence[Path],
    server: ForkServerClient | None,
    dashboard: Dashboard | None,
) -> int:
    from fedsilo.local.comparison import COMPARISON_FILE, job_rows
    from fedsilo.local.csv_rows import csv_bytes
    from fedsilo.local.display import show_comparison
    from fedsilo.local.stopping import StopRequest
    from fedsilo.local.workdir import RunDirectory

    outcomes: list[RunOutcome] = []
    for file, federation, directory in zip(args.file, federations, directories, strict=True):
        try:
            baseline = args.alone and not outcomes
            workdir = RunDirectory(directory.resolve())
            outcomes.append(_run_one(args, file, federation, workdir, baseline, server, dashboard))
        except StopRequest as stopped:
            advice = "a run in one process cannot be resumed" if args.in_process else _resuming(base)
            print(f"fedsilo: {stopped}; {advice}", file=sys.stderr)
            return stopped.exit_code
        if outcomes[-1].exit_code != 0:
            break
    if len(federations) > 1:
        write_durably(base / COMPARISON_FILE, csv_bytes(list(job_rows(outcomes))))
        if not args.json:
            show_comparison(outcomes)
    return outcomes[-1].exit_code


def _dashboard(
    args: argparse.Namespace, federations: list[JobManifest], served: ExitStack
) -> Dashboard | None:
    """The dashboard, served until that stack is left."""
    if not args.dashboard:
        return None
    from fedsilo.local.dashboard import Dashboard

    dashboard = Dashboard(federations)
    address = served.enter_context(dashboard.serving())
    print(f"dashboard {address}", file=sys.stderr if args.json else sys.stdout, flush=True)
    return dashboard


def _run_one(
    args: argparse.Namespace,
    file: Path,
    federation: JobManifest,
    workdir: RunDirectory,
    with_baseline: bool,
    server: ForkServerClient | None,
    dashboard: Dashboard | None,
) -> RunOutcome:
    from fedsilo.local.comparison import ALONE_FILE, alone_rows
    from fedsilo.local.csv_rows import csv_bytes
    from fedsilo.local.display import display_for, show_result
    from fedsilo.local.in_process import run_in_process
    from fedsilo.local.run import local_baseline, run_processes
    from fedsilo.local.stopping import stopping
    from fedsilo.simulation.execution import ExecutionPlan

    stream = sys.stderr if args.json else sys.stdout
    root = file.resolve().parent
    # Jobs of this run that had not been started are started now.
    resume = args.resume and (len(args.file) == 1 or (workdir.root / "run.json").exists())
    display = display_for(stream)
    if dashboard is not None:
        display = dashboard.attach(display, federation)
    if args.in_process:
        execution = ExecutionPlan(args.workers, args.batch_clients)
        with stopping() as check:
            outcome = run_in_process(federation, workdir, root, display, execution, check)
    else:
        assert server is not None
        with stopping() as check:
            outcome = run_processes(federation, workdir, root, resume, display, server, check)
    baseline: dict[str, Any] = {}
    if with_baseline and outcome.exit_code == 0:
        print("training each silo alone, and all silos' data pooled, for comparison", file=stream, flush=True)
        assert server is not None
        with stopping() as check:
            baseline = local_baseline(workdir, file.resolve(), root, server, check)
        write_durably(workdir.root / ALONE_FILE, csv_bytes(list(alone_rows(outcome.document, baseline))))
    if args.json:
        print(json.dumps(outcome.document | finite_figures(baseline), allow_nan=False), flush=True)
    else:
        show_result(outcome.document, baseline, federation.job.spec.data)
    return outcome


def count(text: str) -> int:
    """A number of an option, from 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1")
    return int(text)


def _resuming(base: Path) -> str:
    return f"go on with --workdir {base} --resume"


def _directories(base: Path, federations: list[JobManifest]) -> Iterator[Path]:
    """Where each job runs: a single one in the named directory, each of several in a directory of its own below it."""
    names = [federation.job.metadata.name for federation in federations]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ManifestInvalid(f"several of the manifests have a job of the name {twice[0]}; rename one")
    for name in names:
        yield base if len(names) == 1 else base / name
