"""`fedsilo silo refuse` records that a person of the institution refuses a job on a machine without Kubernetes."""

from __future__ import annotations

import argparse

from fedsilo.cli.institution.deciding import add_arguments, run_decision

__all__ = ["add_arguments", "run"]


def run(args: argparse.Namespace) -> int:
    """Record the institution's refusal of a job, or list the jobs that wait for a decision. Errors are those of
    `run_decision`.
    """
    return run_decision(args, "Refused")
