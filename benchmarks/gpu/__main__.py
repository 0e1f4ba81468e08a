"""Measure fedsilo on a GPU: correctness, training, clients, privacy, aggregation, several processes, a table's cell.

    python -m benchmarks.gpu                        # at most eight minutes on the first GPU
    python -m benchmarks.gpu --quick                # three
    python -m benchmarks.gpu --only training table --device cuda:1 --data /data

Every part has a time limit and a process of its own, so that one which is late, or ends badly, costs only itself. What
is measured is on file after every case, in one JSON file for commit, device and size: the same command goes on where it
was stopped, and a table's cell at its last round. The page `docs/results/gpu.md` is written from all files that are
kept. Where there is no GPU, or with `--device cpu`, a reduced form runs in under a minute and keeps nothing, unless
`--into` names a folder; its figures say nothing but that everything runs.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.gpu import devices, page
from benchmarks.gpu.bundle import stated_commit
from benchmarks.gpu.cases import Setting, Size
from benchmarks.gpu.parts import BY_NAME, PARTS
from benchmarks.gpu.records import begin_record, device_facts, read_all
from benchmarks.gpu.running import ROOT, Run
from benchmarks.tables.results import REVISION, processor, revision

RESULTS_DIRECTORY = ROOT / "docs" / "results" / "gpu"
PAGE = ROOT / "docs" / "results" / "gpu.md"


def main(argv: list[str] | None = None) -> int:
    """Run what is asked for; 0 where all of it was measured, 1 where something was not, 130 after Ctrl-C."""
    began = time.time()
    parser, args = _arguments(argv)
    if args.render:
        page.write(read_all(args.into or RESULTS_DIRECTORY), PAGE)
        print(PAGE.relative_to(ROOT))
        return 0
    # A stop by `kill` is one by Ctrl-C: the part's process ends, the record is written.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        found = devices.gpus()
        device = devices.choose(found, args.device, devices.Device(devices.CPU, 0, processor()))
    except devices.NoSuchDevice as error:
        parser.error(str(error))
    environment = devices.environment(device, found)
    if device.kind == devices.CPU and args.into is None:
        with tempfile.TemporaryDirectory(prefix="fedsilo-gpu-") as folder:
            return _run(args, device, environment, Path(folder), began)
    into = args.into or RESULTS_DIRECTORY
    code = _run(args, device, environment, into, began)
    if into == RESULTS_DIRECTORY:
        page.write(read_all(into), PAGE)
        print(PAGE.relative_to(ROOT))
    return code


def _run(
    args: argparse.Namespace, device: devices.Device, environment: dict[str, str], into: Path, began: float
) -> int:
    commit = args.commit or stated_commit(args.bundle) or revision(ROOT)
    size: Size = "reduced" if device.kind == devices.CPU else "quick" if args.quick else "full"
    record = begin_record(commit, size, device_facts(device, devices.driver()), into)
    print(f"{device}, {size} form, commit {commit}", flush=True)
    setting = Setting(device.kind, size, into.resolve(), args.data.resolve(), 0)
    environment = {**environment, REVISION: commit}
    run = Run(setting, environment, lambda line: print(line, flush=True), began)
    parts = [part for part in PARTS if args.only is None or part.name in args.only]
    try:
        run.run(parts, record)
    except KeyboardInterrupt:
        print("\nstopped; the same command goes on from here", file=sys.stderr)
        return 130
    finally:
        path = record.write(into)
    print(path)
    for fault in record.faults:
        print(f"not measured: {fault}", file=sys.stderr)
    return 1 if record.faults else 0


def _arguments(argv: list[str] | None) -> tuple[argparse.ArgumentParser, argparse.Namespace]:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="three minutes instead of eight")
    parser.add_argument(
        "--only", nargs="+", choices=list(BY_NAME), metavar="PART", help=f"of {', '.join(BY_NAME)}"
    )
    parser.add_argument("--device", metavar="DEVICE", help="cuda, cuda:1 or cpu; the first GPU by default")
    parser.add_argument(
        "--data",
        type=Path,
        default=Path("data"),
        metavar="FOLDER",
        help="with CIFAR-10, for the table's cell",
    )
    parser.add_argument("--into", type=Path, metavar="FOLDER", help="records; docs/results/gpu by default")
    parser.add_argument("--commit", help="for the record; that of git by default")
    parser.add_argument("--bundle", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--render", action="store_true", help="write the page only; measure nothing")
    return parser, parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
