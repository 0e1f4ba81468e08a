"""`fedsilo silo doctor` checks what must hold for a silo on this machine, with one line each on what to do."""

from __future__ import annotations

import argparse

from fedsilo.cli.institution.place import add_directory, directory_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the silo's directory to the arguments of `fedsilo silo doctor`."""
    add_directory(parser)


def run(args: argparse.Namespace) -> int:
    """Print every finding about the silo, and return 1 when something is to be done.

    :raises FedsiloError: when the directory is no silo's that has joined.
    """
    import asyncio

    from fedsilo.hub.doctor.finding import has_failed, report
    from fedsilo.institution.doctor import examine

    found = asyncio.run(examine(directory_of(args)))
    print(report(found))
    return int(has_failed(found))
