"""What people of the institution have decided about jobs: a file that only `fedsilo silo approve` and `refuse` write.

It stands beside `silo.yaml`, which stays as its author wrote it, comments and all, and may hold decisions of its own
under `policy.approvals`.
"""

from __future__ import annotations

from collections.abc import Sequence

import yaml
from pydantic import Field

from fedsilo.api.common import Fields
from fedsilo.api.json_yaml import JsonDumper
from fedsilo.api.loading import load_document
from fedsilo.api.silo_policy import Approval
from fedsilo.errors import ManifestInvalid
from fedsilo.files.durable import write_durably
from fedsilo.institution.directory import SiloDirectory

MAX_APPROVALS = 200
"""Entries that the file holds: as many as a Silo's policy."""

HEADER = "# Written by fedsilo silo approve and fedsilo silo refuse.\n"


class DecisionStore(Fields):
    """The file of the decisions of people about jobs."""

    approvals: tuple[Approval, ...] = Field(max_length=MAX_APPROVALS, description="One for each job.")


def read_approvals(directory: SiloDirectory) -> tuple[Approval, ...]:
    """What people have decided; nothing where there is no file.

    :raises ManifestFaults: when it is not as a command wrote it.
    """
    if not directory.approvals.exists():
        return ()
    return load_document(directory.approvals, DecisionStore).approvals


def write_approval(directory: SiloDirectory, entry: Approval) -> None:
    """Put a decision in place of any other about the same job.

    :raises ManifestInvalid: when there are too many.
    """
    others = [other for other in read_approvals(directory) if other.job != entry.job]
    if len(others) >= MAX_APPROVALS:
        raise ManifestInvalid(
            f"{directory.approvals}: has {len(others)} entries, which is the most; remove those of jobs that are gone"
        )
    entries = [one.model_dump(mode="json", by_alias=True, exclude_none=True) for one in (*others, entry)]
    text = HEADER + yaml.dump({"approvals": entries}, Dumper=JsonDumper, sort_keys=False)
    write_durably(directory.approvals, text.encode())


def merge_approvals(own: Sequence[Approval], decided: Sequence[Approval]) -> tuple[Approval, ...]:
    """The decisions of both files: of two about one job a refusal counts, until it is taken out of its file."""
    refused_first = sorted((*decided, *own), key=lambda entry: entry.decision != "Refused")
    return tuple(refused_first)
