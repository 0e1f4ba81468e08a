"""`fedsilo silo leave` ends the silo's membership in the consortium."""

from __future__ import annotations

import argparse

from fedsilo.cli.confirmation import agreed
from fedsilo.cli.institution.place import add_directory, directory_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the silo's directory and `--yes` to the arguments of `fedsilo silo leave`."""
    add_directory(parser)
    parser.add_argument("--yes", action="store_true", help="do not ask")


def run(args: argparse.Namespace) -> int:
    """Leave the consortium after a question to the person who asks. The command may be repeated.

    :raises ManifestInvalid: when there is nobody to ask.
    :raises FedsiloError: as `fedsilo.institution.leaving.leave`.
    """
    import asyncio

    from fedsilo.institution.leaving import leave

    directory = directory_of(args)
    member = directory.require_membership()
    with directory.hold_directory():
        question = (
            f"Silo {member.silo} ends its part in every job, and needs an invitation to come back. Leave?"
        )
        if not args.yes and not agreed(question, to="leave"):
            print("nothing was done")
            return 0
        asyncio.run(leave(directory, member))
    print(f"silo {member.silo} has left; its jobs have ended, and it is asked for nothing more")
    print(f"audit logs, private state and the key stay in {directory.root} until you delete them")
    return 0
