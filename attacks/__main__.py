"""`python -m attacks` runs every program, or those that are named, and writes the table when all were run."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from attacks.programs import ATTACK_TARGETS, README, all_programs, readme
from attacks.run import SECONDS, Row, by_documents, on_aggregator, on_gateway, on_guard
from attacks.table import TABLE, line, page


def main(argv: list[str] | None = None) -> int:
    """Run the attacks, and return 1 when one was not refused or cost too much."""
    parser = argparse.ArgumentParser(prog="python -m attacks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="programs to run (default: all)")
    parser.add_argument("--list", action="store_true", help="write attacks/README.md anew, and run nothing")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="how long each is repeated")
    args = parser.parse_args(argv)
    if args.list:
        write_readme()
        return 0
    known = {program.name: program for program in all_programs()}
    for name in args.names:
        if name not in known:
            parser.error(f"there is no program {name}; these exist: {', '.join(known)}")
    chosen = [known[name] for name in args.names or known]
    rows: dict[str, list[Row]] = {attacked: [] for attacked in ATTACK_TARGETS}
    with tempfile.TemporaryDirectory() as folder:
        for attacked, run in (
            ("aggregator", on_aggregator),
            ("gateway", on_gateway),
            ("guard", on_guard),
            ("documents", by_documents),
        ):
            against = [program for program in chosen if program.attacked == attacked]
            if against:
                for row in run(Path(folder) / attacked, against, args.seconds):
                    rows[attacked].append(row)
                    print(line(row), flush=True)
    if not args.names:
        TABLE.write_text(page(args.seconds, rows))
    faults = [row for row in (row for found in rows.values() for row in found) if row.verdict]
    for row in faults:
        print(f"{row.program.name if row.program else 'honest silos'}: {row.verdict}", file=sys.stderr)
    return 1 if faults else 0


def write_readme() -> None:
    """Keep what a person wrote, down to the first list."""
    head = README.read_text().partition("## On a live")[0]
    README.write_text(head + readme())


if __name__ == "__main__":
    sys.exit(main())
