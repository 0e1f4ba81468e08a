"""What an aggregator that is curious can find out, beside what protects against it.

    python -m benchmarks.privacy                                  # digits, which are shipped
    python -m benchmarks.privacy --dataset mnist --data FOLDER
    python -m benchmarks.privacy --render                         # tables and picture of what is on file

Membership inference (is this image among the victim's?) and inversion (what do its images look like?) against FedAvg's
models, CCVR's class means and CReFF's averaged gradients: as sent, with example-level differential privacy, and where
the aggregator sees the sum of all silos only. What is finished is on file, a JSON line for each attack; called again,
the same command goes on with the rest.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks.privacy import report
from benchmarks.privacy.campaign import campaign, read
from benchmarks.privacy.federation import SHAPES
from fedsilo.errors import FedsiloError

INTO = Path("docs/results")


def main() -> int:
    """Run what is missing, then print the tables and draw the picture."""
    args = _arguments()
    lines = args.into / "privacy.jsonl"
    try:
        if not args.render:
            campaign(args.dataset, args.runs, args.data.resolve(), lines)
    except FedsiloError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    found = read(lines)
    print(report.tables(found), end="")
    report.draw(found, args.into / "privacy.png")
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.privacy",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--dataset", choices=list(SHAPES), default="digits")
    parser.add_argument("--runs", type=int, default=32, metavar="N", help="of each job; 32 by default")
    parser.add_argument("--data", type=Path, default=Path("data"), metavar="FOLDER", help="of MNIST")
    parser.add_argument("--into", type=Path, default=INTO, metavar="FOLDER", help=f"{INTO} by default")
    parser.add_argument("--render", action="store_true", help="run nothing")
    args = parser.parse_args()
    if args.runs < 3:
        parser.error(f"--runs: {args.runs} is too few: an attack compares a run with at least two others")
    return args


if __name__ == "__main__":
    sys.exit(main())
