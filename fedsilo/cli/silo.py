"""`fedsilo silo` has the commands by which an institution asks its own silo, and runs one on a machine without
Kubernetes.
"""

from __future__ import annotations

import argparse
from importlib import import_module

from fedsilo.cli.help_text import description

QUESTIONS = {
    "join": "make a silo's directory and key, and register the key with an invitation",
    "serve": "follow the hub, and run guards and trainers on this machine",
    "status": "show a silo's jobs, what waits for a person, and whether the hub is reached",
    "approve": "approve a job, or list the jobs that wait for it",
    "refuse": "refuse a job",
    "dashboard": "serve the silo's page on this machine: what waits, what runs, what has left",
    "rotate-key": "make another signing key, and announce it to the hub under the old one",
    "leave": "leave the consortium",
    "doctor": "check DNS, proxy, TLS, clock, enrolment, isolation, GPU and storage, one line each with what to do",
    "budget": "show what may be learned of each dataset, what is spent, and by which job",
    "receipts": "list what left a silo for a job, from its verified audit log",
}
"""Command -> its help; the module of the same name in `fedsilo.cli.institution` implements it."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command, and what it takes."""
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, summary in QUESTIONS.items():
        command = commands.add_parser(name, help=summary, description=description(summary))
        module = import_module(f"fedsilo.cli.institution.{name.replace('-', '_')}")
        module.add_arguments(command)
        command.set_defaults(answer=module.run)


def run(args: argparse.Namespace) -> int:
    """Run the command of `fedsilo silo` that was named.

    :raises FedsiloError: as the command does.
    """
    return int(args.answer(args))
