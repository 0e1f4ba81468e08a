"""`fedsilo silo join` makes a silo's directory and key, and registers the key with an invitation."""

from __future__ import annotations

import argparse
from pathlib import Path

from fedsilo.cli.institution.place import add_directory, directory_of
from fedsilo.errors import Problem


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The invitation, and where the silo is to be."""
    parser.add_argument("invitation", type=Path, help="the file that the consortium's office has sent")
    add_directory(parser)


def run(args: argparse.Namespace) -> int:
    """Join, and say what comes next; may be repeated.

    :raises FedsiloError: as `fedsilo.institution.joining.join`.
    """
    import asyncio

    from fedsilo.api.invitation import read_invitation_file
    from fedsilo.hub.contact import INVITATION_CODES
    from fedsilo.hub.failures import Unreachable
    from fedsilo.institution.joining import join

    directory, invitation = directory_of(args), read_invitation_file(args.invitation)
    kept = f"the key is kept in {directory.key_file}: once that is done, run the same command again"
    try:
        joined = asyncio.run(join(directory, invitation))
    except Problem as problem:
        another = " with another invitation" if problem.code in INVITATION_CODES else ""
        raise Problem(problem.code, f"{problem.detail}; {kept}{another}") from problem
    except Unreachable as error:
        raise Unreachable(f"{error}; {kept}") from error
    print(f"silo {joined.silo} has registered its key at {invitation.hub.url}")
    print(f"fingerprint {joined.fingerprint}")
    print("next:")
    namespace, _, name = joined.silo.partition("/")
    accept = f"kubectl fedsilo accept {name} -n {namespace}"
    print(f"  tell the consortium's office the fingerprint by telephone; it runs {accept}")
    verb = "list your datasets in" if joined.new_silo_file else "look once more through"
    print(f"  {verb} {directory.silo_file}")
    print(f"  start the silo: fedsilo silo serve --dir {directory.root}")
    return 0
