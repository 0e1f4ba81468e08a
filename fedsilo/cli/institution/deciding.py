"""What `fedsilo silo approve` and `fedsilo silo refuse` share: a person of the institution decides about one job."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from datetime import datetime

from fedsilo.api.observed import Object
from fedsilo.api.silo_policy import Verdict
from fedsilo.cli.cluster.offer import describe, frozen_spec, proposal_of, question
from fedsilo.cli.cluster.text import plain_line
from fedsilo.cli.cluster.time_format import age, duration
from fedsilo.cli.columns import columns
from fedsilo.cli.confirmation import agreed
from fedsilo.cli.institution.place import add_directory, directory_of
from fedsilo.errors import ManifestInvalid
from fedsilo.institution.deciding import choose, decide, entry_of, is_decided, waiting


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The job, and what is said about it."""
    parser.add_argument(
        "job", metavar="JOB-UID|SILOAGENT", nargs="?", help="what to decide on (default: list what waits)"
    )
    add_directory(parser)
    parser.add_argument("--note", default="", metavar="TEXT", help="why, for the consortium to read")
    parser.add_argument("--yes", action="store_true", help="do not ask")


def run_decision(args: argparse.Namespace, verdict: Verdict) -> int:
    """List what waits, or show one job and write the decision about it.

    :raises ManifestInvalid: when there is no such job, or nobody can be asked.
    :raises PolicyRefused: when what is on file about it is not what it says.
    """
    directory = directory_of(args)
    member = directory.require_membership()
    if args.job is None:
        print(_table(waiting(directory)))
        return 0
    directory.require_owner()
    record = choose(directory, args.job)
    proposal = proposal_of(record)
    if proposal is None:
        raise ManifestInvalid(
            f"{args.job}: nothing is proposed yet; start fedsilo silo serve, which looks at what the hub asks for"
        )
    entry = entry_of(proposal, verdict, args.note)
    print(describe(record, frozen_spec(record), proposal))
    job = f"{proposal.namespace}/{proposal.name}"
    if is_decided(directory, entry):
        print(f"\nsilo {member.silo} has {verdict.lower()} it already")
        return 0
    if not args.yes and not agreed(question(verdict)):
        print("nothing was decided")
        return 0
    decide(directory, entry)
    print(f"\nsilo {member.silo} has {verdict.lower()} job {plain_line(job)}")
    return 0


def _table(records: Sequence[Object]) -> str:
    if not records:
        return "no job waits for a decision"
    now = datetime.now().astimezone()
    rows = [("siloagent", "job", "method", "age")]
    for record in records:
        job, metadata = record["spec"]["job"], record["metadata"]
        waits = duration(age(metadata["creationTimestamp"], now))
        name = plain_line(f"{job['namespace']}/{job['name']}")
        rows.append((metadata["name"], name, plain_line(job["spec"]["method"]["name"]), waits))
    return columns(rows)
