"""`fedsilo approve` records that a person of the institution approves a job, or lists the jobs that wait for that."""

from __future__ import annotations

import argparse

from fedsilo.cli.cluster import approval

add_arguments = approval.add_arguments


def run(args: argparse.Namespace) -> int:
    """Record the institution's approval of a job, or list the jobs that wait for one. Errors are those of
    `approval.decide`.
    """
    return approval.decide(args, "Approved")
