"""Campaign of fuzzing that changes honest inputs at random until the time is over or a target has a defect.

    python -m tests.fuzz                                # every target in turn, two minutes
    python -m tests.fuzz --seconds 3600 task proof      # an hour for two of them

An input that finds a defect is made shorter, kept in tests/fuzz/corpus/, and read by the suite from then on.
"""

from __future__ import annotations

import argparse
import logging
import random
import secrets
import sys
import time
import traceback
from collections.abc import Sequence

from tests.fuzz.corpus import save, saved_inputs
from tests.fuzz.targets import Target, targets

TURN_SECONDS = 1.0


def main() -> int:
    """Fuzz the targets of the command line; 1 when a defect was found."""
    known = targets()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"of: {', '.join(known)}")
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1 << 32))
    parser.add_argument(
        "--guided", action="store_true", help="one target, guided by the coverage of its code"
    )
    args = parser.parse_args()
    for name in set(args.targets) - known.keys():
        parser.error(f"there is no target {name!r}; use one of {', '.join(known)}")
    chosen = [known[name] for name in args.targets] or list(known.values())
    print(f"seed {args.seed}", flush=True)
    logging.disable(logging.CRITICAL)
    return run(chosen, args.seconds, random.Random(args.seed))


def run(chosen: Sequence[Target], seconds: float, generator: random.Random) -> int:
    """Give each target a turn after the other; 1 at the first defect, 0 when the time is over."""
    inputs = dict.fromkeys((target.name for target in chosen), 0)
    slowest = dict.fromkeys(inputs, 0.0)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for target in chosen:
            seeds = [*target.seeds, *(path.read_bytes() for path in saved_inputs(target))]
            turn = time.monotonic() + min(TURN_SECONDS, seconds / len(chosen))
            while (began := time.monotonic()) < turn:
                data = target.draw(seeds, generator.randrange)
                if not is_sound(target, data):
                    report(target, data)
                    return 1
                inputs[target.name] += 1
                slowest[target.name] = max(slowest[target.name], time.monotonic() - began)
    print("| target | inputs | slowest, ms |\n|---|---|---|")
    for name, number in inputs.items():
        print(f"| {name} | {number} | {1000 * slowest[name]:.0f} |")
    return 0


def is_sound(target: Target, data: bytes) -> bool:
    """Whether the parser takes or refuses the input."""
    try:
        target.try_(data)
    except Exception:
        return False
    return True


def report(target: Target, data: bytes) -> None:
    """Keep the input of a defect, and show where it comes from."""
    shorter = shortened_input(target, data)
    path = save(target, shorter)
    print(f"{target.name}: a defect, kept as {path}", file=sys.stderr)
    try:
        target.try_(shorter)
    except Exception:
        traceback.print_exc()


def shortened_input(target: Target, data: bytes) -> bytes:
    """The input without whatever the defect does not need."""
    size = len(data) // 2
    while size:
        start = 0
        while start < len(data):
            without = data[:start] + data[start + size :]
            if is_sound(target, without):
                start += size
            else:
                data = without
        size //= 2
    return data


if __name__ == "__main__":
    sys.exit(main())
