"""`fedsilo silo approve` records that a person of the institution approves a job on a machine without Kubernetes."""

from __future__ import annotations

import argparse

from fedsilo.cli.institution.deciding import add_arguments, run_decision

__all__ = ["add_arguments", "run"]


def run(args: argparse.Namespace) -> int:
    """Record the institution's approval of a job, or list the jobs that wait for one. Errors are those of
    `run_decision`.
    """
    return run_decision(args, "Approved")
