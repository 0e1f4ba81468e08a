"""What an aggregator that is curious can find out, and what protection against it costs.

    python -m benchmarks.privacy attacks                          # digits, which are shipped
    python -m benchmarks.privacy attacks --dataset mnist --data FOLDER
    python -m benchmarks.privacy accuracy --dataset cifar10 --data FOLDER
    python -m benchmarks.privacy silos
    python -m benchmarks.privacy epsilons
    python -m benchmarks.privacy attacks --render                 # tables and picture of what is on file

`attacks`: membership inference (is this image among the victim's?) and inversion (what do its images look like?)
against FedAvg's models, CCVR's class means and CReFF's averaged gradients: as sent, with example-level differential
privacy, and where the aggregator sees the sum of all silos only. `accuracy`: FedAvg, FedConcat and CCVR at several
epsilons. `silos`: FedAvg whose noise hides whole silos.
What is finished is on file, as JSON lines; called again, the same command goes on with the rest. `epsilons`: what jobs
state beside what their silos draw comes to, which is not kept.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks.privacy import accuracy, campaign, epsilons, report, silos
from benchmarks.privacy.campaign import read
from benchmarks.privacy.federation import SHAPES
from fedsilo.errors import FedsiloError

RESULTS_DIRECTORY = Path("docs/results")


def main() -> int:
    """Run what is missing, then print the tables and draw the picture."""
    args = _arguments()
    of = {"attacks": _attacks, "accuracy": _accuracy, "silos": _silos, "epsilons": _epsilons}
    try:
        of[args.what](args)
    except FedsiloError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


def _attacks(args: argparse.Namespace) -> None:
    path = args.into / "privacy.jsonl"
    if not args.render:
        campaign.campaign(args.dataset, args.runs, args.data.resolve(), path)
    lines = read(path)
    print(report.tables(lines), end="")
    report.draw(lines, args.into / "privacy.png")


def _accuracy(args: argparse.Namespace) -> None:
    path = args.into / "privacy-accuracy.jsonl"
    if not args.render:
        accuracy.campaign(args.dataset, args.data.resolve(), path)
    print(accuracy.table(read(path)))


def _silos(args: argparse.Namespace) -> None:
    path = args.into / "privacy-silos.jsonl"
    if not args.render:
        silos.campaign(path)
    print(silos.table(read(path)))


def _epsilons(args: argparse.Namespace) -> None:
    del args
    found = [each for configuration in epsilons.CONFIGURATIONS for each in epsilons.measure(configuration)]
    print(epsilons.table(found))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.privacy",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("what", choices=["attacks", "accuracy", "silos", "epsilons"])
    parser.add_argument("--dataset", choices=list(accuracy.SCALES), default="digits")
    parser.add_argument(
        "--runs", type=int, default=32, metavar="N", help="of each attacked job; 32 by default"
    )
    parser.add_argument("--data", type=Path, default=Path("data"), metavar="FOLDER", help="of the datasets")
    parser.add_argument(
        "--into",
        type=Path,
        default=RESULTS_DIRECTORY,
        metavar="FOLDER",
        help=f"{RESULTS_DIRECTORY} by default",
    )
    parser.add_argument("--render", action="store_true", help="run nothing")
    args = parser.parse_args()
    if args.runs < 3:
        parser.error(f"--runs: {args.runs} is too few: an attack compares a run with at least two others")
    if args.what == "attacks" and args.dataset not in SHAPES:
        parser.error(f"--dataset: {args.dataset} is not attacked; use one of {', '.join(SHAPES)}")
    return args


if __name__ == "__main__":
    sys.exit(main())
