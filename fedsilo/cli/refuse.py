"""`fedsilo refuse` records that a person of the institution refuses a job, or lists the jobs that wait for that."""

from __future__ import annotations

import argparse

from fedsilo.cli.cluster import approval

add_arguments = approval.add_arguments


def run(args: argparse.Namespace) -> int:
    """Record the institution's refusal of a job, or list the jobs that wait for a decision. Errors are those of
    `approval.decide`.
    """
    return approval.decide(args, "Refused")
