"""`fedsilo approve`: a person of the institution approves a job, or sees which wait for that."""

from __future__ import annotations

import argparse

from fedsilo.cli.cluster import approval

add_arguments = approval.add_arguments


def run(args: argparse.Namespace) -> int:
    """Write the decision; raises as `approval.decide`."""
    return approval.decide(args, "Approved")
