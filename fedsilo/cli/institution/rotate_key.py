"""`fedsilo silo rotate-key` makes another signing key, and announces it to the hub under the old one."""

from __future__ import annotations

import argparse

from fedsilo.cli.institution.place import add_directory, directory_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the silo's directory to the arguments of `fedsilo silo rotate-key`."""
    add_directory(parser)


def run(args: argparse.Namespace) -> int:
    """Replace the silo's signing key and print the new fingerprint. The command may be repeated where it was cut off.

    :raises FedsiloError: as `fedsilo.institution.rotating.rotate_key`.
    """
    import asyncio

    from fedsilo.institution.rotating import rotate_key

    directory = directory_of(args)
    member = directory.require_membership()
    with directory.hold_directory():
        fingerprint = asyncio.run(rotate_key(directory, member))
    print(f"silo {member.silo} signs with a new key from now on; jobs that run end with the old one")
    print(f"fingerprint {fingerprint}")
    return 0
