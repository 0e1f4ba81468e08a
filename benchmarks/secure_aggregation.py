"""What a sum that nobody can open costs beside a plain one: CPU seconds and bytes, for a silo and for the aggregator.

    python -m benchmarks.secure_aggregation
    python -m benchmarks.secure_aggregation --silos 4 --megabytes 1

One silo and the aggregator are measured in this process; the vector of that silo stands for those of the others, which
cost the aggregator as much. Each line of `docs/results/secure-aggregation.jsonl` is one size.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.tables.results import machine
from fedsilo.secure_aggregation.aggregator_side import add_masked, unmask
from fedsilo.secure_aggregation.fixed_point import FixedPoint
from fedsilo.secure_aggregation.messages import SENT_DIGEST_BYTES, SumContext
from fedsilo.secure_aggregation.silo_side import SiloSide
from fedsilo.wire.keys import SigningKey

RESULTS_FILE = Path("docs/results/secure-aggregation.jsonl")
SILOS, MEGABYTES = (4, 16, 50), (1, 100)


class Clock:
    """CPU seconds of this process, by what they were spent on."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def of(self, name: str, work: Callable[[], Any]) -> Any:
        """Do the work, count its CPU seconds under a name, and return what it returns."""
        began = time.process_time()
        found = work()
        self.seconds[name] = self.seconds.get(name, 0.0) + time.process_time() - began
        return found


def measure(count: int, megabytes: int) -> dict[str, Any]:
    """Measure a secure sum of so many silos and a float32 model of so many megabytes."""
    clock, numbers = Clock(), megabytes * 250_000
    keys = [SigningKey.generate() for _ in range(count)]
    names = [f"silos/s{place}" for place in range(count)]
    members = {name: key.verify_key for name, key in zip(names, keys, strict=True)}
    context = SumContext("uid", "r00001-train", members, count // 2 + 1)
    sides = {name: SiloSide.begin(context, name) for name in names}
    announced = {name: side.announcement(key) for (name, side), key in zip(sides.items(), keys, strict=True)}
    first, sealed = names[0], dict[str, dict[str, bytes]]()
    for name, side in sides.items():
        began = time.process_time()
        sides[name], sealed[name] = side.shares(announced)
        if name == first:
            clock.seconds["silo: keys and shares"] = time.process_time() - began
    mine = {name: sealed[name][first] for name in names if name != first}
    model = np.random.default_rng(0).normal(0, 0.05, numbers).astype(np.float32)
    encoding = FixedPoint(count, 1e4)
    vector = clock.of("silo: fixed point", lambda: encoding.encode(model.astype(np.float64) * 1000))
    sides[first], masked = clock.of(
        "silo: masks", lambda: sides[first].mask_vector(announced, mine, vector, bytes(SENT_DIGEST_BYTES))
    )
    plain = np.zeros(numbers, np.float32)
    for _ in range(count):
        clock.of("aggregator: plain sum", lambda: np.add(plain, model * np.float32(1 / count), out=plain))
    for name in names[1:]:  # an empty vector costs them no masks
        own = {other: sealed[other][name] for other in names if other != name}
        sides[name], _ = sides[name].mask_vector(
            announced, own, np.zeros(0, np.uint64), bytes(SENT_DIGEST_BYTES)
        )
    for gone in (0, 1):
        survivors = names[: count - gone] if gone else names
        found = _unmask_copies(clock, context, announced, sealed, sides, keys, survivors, masked, gone)
    sent = [len(announced[first].to_bytes()), sum(map(len, sealed[first].values())), 64, found]
    return {
        "silos": count,
        "megabytes": megabytes,
        "seconds": {name: round(value, 4) for name, value in clock.seconds.items()},
        "bytes": {"plain": 4 * numbers, "masked": 8 * numbers, "messages": sum(sent)},
        "date": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "machine": machine(),
    }


def _unmask_copies(
    clock: Clock,
    context: SumContext,
    announced: Any,
    sealed: Any,
    sides: dict[str, SiloSide],
    keys: list[SigningKey],
    survivors: list[str],
    masked: np.ndarray,
    gone: int,
) -> int:
    """Confirm and unmask, of copies of the silos, so that it can be done again; bytes of an unmasking."""
    names, confirmed, copies = list(sides), dict[str, bytes](), dict(sides)
    got = {name: {other: sealed[other][name] for other in names if other != name} for name in survivors}
    for place, name in enumerate(survivors):
        copies[name], confirmed[name] = copies[name].confirmation(got[name], survivors, keys[place])
    unmaskings = {
        name: copies[name].unmasking(announced, got[name], survivors, confirmed) for name in survivors
    }
    total = np.zeros(masked.size, np.uint64)
    what = "one silo dropped out" if gone else "all survive"
    for _ in survivors:
        clock.of(f"aggregator: masked sum, {what}", lambda: add_masked(total, [masked]))
    clock.of(
        f"aggregator: unmasking, {what}",
        lambda: unmask(total, context, announced, names, survivors, unmaskings, bytes(SENT_DIGEST_BYTES)),
    )
    return len(unmaskings[survivors[0]].to_bytes(names))


def table(lines: list[dict[str, Any]]) -> str:
    """A row for each size."""
    rows = [
        "| silos | model | silo: keys, shares | silo: fixed point | silo: masks | aggregator: plain sum | masked sum | "
        "unmasking | the same, one silo dropped out | bytes plain | masked | other messages |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for line in lines:
        seconds, size = line["seconds"], line["bytes"]
        figures = [
            seconds["silo: keys and shares"],
            seconds["silo: fixed point"],
            seconds["silo: masks"],
            seconds["aggregator: plain sum"],
            seconds["aggregator: masked sum, all survive"],
            seconds["aggregator: unmasking, all survive"],
            seconds["aggregator: unmasking, one silo dropped out"],
        ]
        shown = " | ".join(f"{value:.3f} s" for value in figures)
        rows.append(
            f"| {line['silos']} | {line['megabytes']} MB | {shown} | {size['plain'] / 1e6:.0f} MB "
            f"| {size['masked'] / 1e6:.0f} MB | {size['messages'] / 1e3:.1f} kB |"
        )
    return "\n".join(rows)


def sizes(args: argparse.Namespace) -> Iterator[tuple[int, int]]:
    """All that are asked for."""
    for megabytes in args.megabytes:
        for count in args.silos:
            yield count, megabytes


def main() -> int:
    """Measure, append the lines, and print the table of all that are on file."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.secure_aggregation",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--silos", type=int, nargs="+", default=list(SILOS), metavar="N")
    parser.add_argument("--megabytes", type=int, nargs="+", default=list(MEGABYTES), metavar="M")
    parser.add_argument(
        "--into", type=Path, default=RESULTS_FILE, metavar="FILE", help=f"{RESULTS_FILE} by default"
    )
    args = parser.parse_args()
    for count, megabytes in sizes(args):
        line = measure(count, megabytes)
        with args.into.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
    print(table([json.loads(line) for line in args.into.read_text().splitlines()]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
