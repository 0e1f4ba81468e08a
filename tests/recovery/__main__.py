"""SIGKILL of what stands between hub and institution, at random moments of a job.

    python -m tests.recovery --kills 60                 # victims in turn, a table at the end
    python -m tests.recovery --kills 60 --log FILE      # the same, which can be interrupted and gone on with
    python -m tests.recovery --victim gateway --seed 7  # one run again
    python -m tests.recovery --outage 600               # the whole hub is gone for ten minutes

The third form repeats one run; it is printed for every run that did not end with the bytes of the undisturbed one.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.recovery.campaign import Attempt, attempt, campaign, read_log, table, write_log
from tests.recovery.laboratory import VICTIMS, Laboratory


def main() -> int:
    """Run trials with kills; 1 when a run was not the same as the undisturbed one."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, help="processes to kill, in all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--victim", choices=VICTIMS, help="only this one; without --kills: one run")
    parser.add_argument("--log", type=Path, help="one line per run; those in it are not tried again")
    parser.add_argument("--directory", type=Path, help="for the runs (default: a temporary one)")
    parser.add_argument("--outage", type=float, metavar="SECONDS", help="time for which the hub is gone")
    args = parser.parse_args()
    if args.kills is None and args.victim is None and args.outage is None:
        parser.error("give --kills, or --victim and --seed of one run, or --outage")
    directory = args.directory or Path(tempfile.mkdtemp(prefix="recovery."))
    with Laboratory(directory) as laboratory:
        if args.outage is not None:
            ended = laboratory.outage(args.outage, lambda sample: print(sample, flush=True))
            print(f"the same after {ended.seconds:.0f} s")
            return 0
        if args.kills is None:
            made = attempt(laboratory, args.victim, args.seed)
            print(made.violation or f"the same after {made.killed} kills")
            return int(bool(made.violation))
        attempts = all_of(args, laboratory)
    print(table(attempts))
    return int(any(made.violation for made in attempts))


def all_of(args: argparse.Namespace, laboratory: Laboratory) -> list[Attempt]:
    """Run the campaign, and keep a line of each run in the log."""

    def note(made: Attempt) -> None:
        if args.log:
            write_log(args.log, made)
        print(f"{made.victim} {made.seed}: {made.killed} kills, {made.seconds:g} s", flush=True)
        if made.violation:
            print(f"{made.command}\n    {made.violation}", flush=True)

    done = read_log(args.log) if args.log else []
    victims = [args.victim] if args.victim else list(VICTIMS)
    return campaign(laboratory, victims, args.kills, args.seed, done, note)


if __name__ == "__main__":
    sys.exit(main())
