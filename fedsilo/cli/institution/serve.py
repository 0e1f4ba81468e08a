"""`fedsilo silo serve` follows the hub, and runs guards and trainers on this machine, until a signal ends it."""

from __future__ import annotations

import argparse

from fedsilo.cli.institution.place import add_directory, directory_of
from fedsilo.logs import add_log_arguments, start_logging


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The silo's directory, and where it is watched."""
    add_directory(parser)
    parser.add_argument(
        "--metrics-port",
        type=int,
        metavar="PORT",
        help="port of /healthz, /readyz and /metrics (default: none)",
    )
    add_log_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Serve the silo until SIGTERM or SIGINT, and return 0 when every process has ended.

    :raises FedsiloError: as `fedsilo.institution.serving.serve_until_signalled`.
    """
    from fedsilo.http.event_loop import run_event_loop
    from fedsilo.institution.serving import serve_until_signalled

    start_logging(args.log_format)
    directory = directory_of(args)
    member = directory.require_membership()
    with directory.hold_directory():
        run_event_loop(serve_until_signalled(directory, member, args.metrics_port))
    return 0
