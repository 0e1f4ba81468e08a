"""`python -m attacks.sums` makes every attempt against secure sums of 3 to 10 silos, and writes the page of what was
seen.

The page is written when all numbers of silos were tried.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys

from attacks.sums.attempts import ATTEMPTS, attempt_outcome
from attacks.sums.page import PAGE, Row, chance, line, page

SILOS = range(3, 11)


def main(argv: list[str] | None = None) -> int:
    """Make all attempts, and return 1 when a job with the defaults has shown more of a silo than chance."""
    parser = argparse.ArgumentParser(prog="python -m attacks.sums", description=__doc__)
    parser.add_argument(
        "--silos", type=int, nargs="+", default=[*SILOS], help="numbers of silos (default: 3 to 10)"
    )
    args = parser.parse_args(argv)
    logging.disable(logging.CRITICAL)  # guards say what they refuse, which the page has
    rows = []
    for least in ("all", "all but one"):
        for attempt in ATTEMPTS:
            counts = [count for count in args.silos if least == "all" or count > 3]
            findings = {
                count: asyncio.run(attempt_outcome(attempt, count, None if least == "all" else count - 1))
                for count in counts
            }
            rows.append(Row(attempt, least, findings))
            print(line(rows[-1]), flush=True)
    if args.silos == [*SILOS]:
        PAGE.write_text(page(rows))
    seen = [
        row for row in rows if row.least == "all" and (row.correlation > chance(row.attempt) or row.exact)
    ]
    for row in seen:
        print(f"{row.attempt}: shows a silo, with the defaults", file=sys.stderr)
    return 1 if seen else 0


if __name__ == "__main__":
    sys.exit(main())
