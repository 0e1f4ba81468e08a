"""Campaign of runs of random plans of faults, each held to the specification.

    python -m tests.protocol --examples 2000            # whatever a machine or a network does
    python -m tests.protocol --examples 2000 --damage   # and files that change while nobody looks
    python -m tests.protocol --defects                  # what shows each of the defects that are made on purpose

A run that breaks the specification is shrunk to the fewest faults that still do, and shown as a story.
"""

from __future__ import annotations

import argparse
import logging
import secrets
import sys
import time
from collections import Counter

from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.protocol.defects import DEFECTS, find_plan
from tests.protocol.plan import Plan, plans
from tests.protocol.specification import run


def main() -> int:
    """Run the campaign of plans; 1 when the specification was broken."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--examples", type=int, default=1000)
    parser.add_argument("--damage", action="store_true", help="damage files as well")
    parser.add_argument("--defects", action="store_true", help="show that defects are found")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1 << 32))
    args = parser.parse_args()
    logging.getLogger().addHandler(logging.NullHandler())
    if args.defects:
        return show_defects(args.examples)
    print(f"seed {args.seed}", flush=True)
    return explore(args.examples, args.damage, args.seed)


def show_defects(examples: int) -> int:
    """The shortest plan that shows each defect; 1 when one was not found."""
    missed = 0
    for name, defect in DEFECTS.items():
        plan = find_plan(defect, examples, shrink=True)
        missed += plan is None
        print(f"{name}:\n{plan or 'not found'}", flush=True)
    return min(missed, 1)


def explore(examples: int, damage: bool, number: int) -> int:
    """Run so many plans; 1 at the first that breaks the specification."""
    counts: Counter[str] = Counter()
    began = time.perf_counter()

    @seed(number)
    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate, Phase.shrink],
        report_multiple_bugs=False,
    )
    @given(plans(damage=damage))
    def hold(plan: Plan) -> None:
        world = run(plan)
        counts.update(world.seen.happened + world.network.happened)
        counts.update({"runs": 1, "requests": world.network.requests, "durable steps": world.steps.total()})
        counts.update({"updates accepted": len(world.seen.accepted)})

    try:
        hold()
    except AssertionError as broken:
        print(broken, file=sys.stderr)
        return 1
    seconds = time.perf_counter() - began
    print("| what | count |\n|---|---|")
    for name, total in sorted(counts.items()):
        print(f"| {name} | {total} |")
    print(f"{counts['runs'] / seconds:.1f} runs a second")
    return 0


if __name__ == "__main__":
    sys.exit(main())
