"""Measurements of the gateway: how much of the direct way's rate a silo has through it, its memory, and how soon it
tells silos news.

    python -m benchmarks.gateway

A silo downloads a model of 100 MB and uploads an update of 100 MB, directly from the aggregator and through the
gateway, by turns. Then 200 silos wait for news with long polls while 20 of them download and upload 100 MB at once,
first in bodies of 1 MB, then of 100 MB. Each line of the output is a JSON object.
"""

from __future__ import annotations

import argparse
import json

from benchmarks.gateway.crowd import crowd
from benchmarks.gateway.link import Link
from benchmarks.gateway.rate import throughput
from fedsilo.http.event_loop import run_event_loop

POLLS, AT_ONCE = 200, 20
SMALL_BYTES, LARGE_BYTES = 1_000_000, 100_000_000


def main() -> None:
    """Print the rate of transfers, then memory and delays with many silos."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gateway", description="Rate, memory and delays."
    )
    parser.add_argument(
        "--pairs", type=int, default=8, help="pairs of transfers, direct and through the gateway"
    )
    parser.add_argument("--polling", type=int, default=POLLS, help="silos that wait for news")
    parser.add_argument("--transferring", type=int, default=AT_ONCE, help="of them, silos that transfer")
    parser.add_argument(
        "--link",
        type=float,
        default=0,
        metavar="GBIT/S",
        help="line between silo and hub (see gateway/link.py)",
    )
    args = parser.parse_args()
    link = Link(args.link)
    link.begin()
    if args.pairs:
        for direction, found in run_event_loop(throughput(args.pairs, link)).items():
            print(json.dumps({"direction": direction} | found), flush=True)
    if args.polling:
        for piece in (SMALL_BYTES, LARGE_BYTES):
            print(json.dumps(crowd(args.polling, args.transferring, piece)), flush=True)


if __name__ == "__main__":
    main()
