"""`fedsilo run`: run a manifest on this machine, without a cluster."""

from __future__ import annotations

import argparse
import json
import sys
from datetime import datetime
from pathlib import Path

from fedsilo.process import INTERRUPTED, TERMINATED
from fedsilo.validation import load_and_validate


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("-f", "--file", type=Path, required=True, help="the manifest (YAML)")
    parser.add_argument("--workdir", type=Path, help="directory of the run (default: runs/JOB-TIME)")
    parser.add_argument("--resume", action="store_true", help="go on with the run that --workdir holds")
    parser.add_argument("--json", action="store_true", help="end with one JSON object on standard output")
    parser.add_argument(
        "--alone", action="store_true", help="also train each silo by itself, to show what federation brings"
    )


def run(args: argparse.Namespace) -> int:
    """Run the job; exit codes are those of `fedsilo.errors`, 130 and 143 after SIGINT and SIGTERM."""
    federation = load_and_validate(args.file)

    from fedsilo.local.display import display_for, show_result
    from fedsilo.local.run import Terminated, train_alone
    from fedsilo.local.run import run as run_federation
    from fedsilo.local.workdir import Workdir

    name = federation.job.metadata.name
    default = Path("runs") / f"{name}-{datetime.now():%Y%m%d-%H%M%S}"
    workdir = Workdir((args.workdir or default).resolve())
    data_root = args.file.resolve().parent
    stream = sys.stderr if args.json else sys.stdout
    alone = []
    try:
        outcome = run_federation(federation, workdir, data_root, args.resume, display_for(stream))
        if args.alone and outcome.exit_code == 0:
            print("training each silo alone, for comparison", file=stream, flush=True)
            alone = train_alone(workdir, args.file.resolve(), data_root)
    except (KeyboardInterrupt, Terminated) as signal:
        interrupted = isinstance(signal, KeyboardInterrupt)
        word = "interrupted" if interrupted else "terminated"
        print(f"fedsilo: {word}; go on with --workdir {workdir.root} --resume", file=sys.stderr)
        return INTERRUPTED if interrupted else TERMINATED
    if args.json:
        print(json.dumps(outcome.document | ({"alone": alone} if alone else {})))
    else:
        show_result(outcome.document, alone)
    return outcome.exit_code
