"""`fedsilo silo dashboard` serves the institution's own page, on this machine."""

from __future__ import annotations

import argparse
import asyncio
import errno
import os

from fedsilo.cli.institution.place import add_directory, directory_of
from fedsilo.errors import ManifestInvalid
from fedsilo.institution.directory import SiloDirectory


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The silo's directory, and the page's port."""
    add_directory(parser)
    parser.add_argument("--port", type=int, default=0, help="port on 127.0.0.1 (default: a free one)")


def run(args: argparse.Namespace) -> int:
    """Serve the page until it is interrupted.

    :raises ManifestInvalid: when the directory is no silo's, or the port is taken.
    """
    directory = directory_of(args)
    try:
        asyncio.run(_serve(directory, args.port))
    except (OSError, OverflowError) as error:
        raise ManifestInvalid(
            f"--port {args.port}: {_why(error)}; name another, or leave --port out for a free one"
        ) from error
    return 0


def _why(error: OSError | OverflowError) -> str:
    match error:
        case OverflowError():
            return "is no port, which are numbers up to 65535"
        case OSError(errno=errno.EADDRINUSE):
            return "another program listens on it already"
        case _:
            return f"cannot be listened on ({os.strerror(error.errno)})" if error.errno else str(error)


async def _serve(directory: SiloDirectory, port: int) -> None:
    from fedsilo.institution.dashboard import institution_page

    async with institution_page(directory, port) as address:
        print(f"dashboard {address}", flush=True)
        await asyncio.Event().wait()
