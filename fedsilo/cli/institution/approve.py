"""`fedsilo silo approve`: a person of the institution approves a job on a machine without Kubernetes."""

from __future__ import annotations

import argparse

from fedsilo.cli.institution.deciding import add_arguments, run_decision

__all__ = ["add_arguments", "run"]


def run(args: argparse.Namespace) -> int:
    """Decide; errors as `run_decision`."""
    return run_decision(args, "Approved")
