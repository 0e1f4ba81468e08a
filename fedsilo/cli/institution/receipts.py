"""`fedsilo silo receipts` shows what left an institution's own silo."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

from fedsilo.api.text import count_text
from fedsilo.cli.cluster.text import plain_line
from fedsilo.cli.columns import columns
from fedsilo.silo.receipts import DepartureReceipt, Receipts, as_document, receipts_of, volumes

HEADINGS = ("ROUND", "PHASE", "STEP", "KIND", "BLOCKS", "BYTES", "DIGEST", "SIGNED", "OUTCOME")
NUMBERS = (0, 4, 5)

SECONDS = len("2026-07-01T00:00:00")
"""Characters of a time that the table shows."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the directory whose receipts are read, and the output format."""
    place = parser.add_mutually_exclusive_group(required=True)
    place.add_argument("--dir", type=Path, metavar="DIR", help="directory of the silo")
    place.add_argument(
        "directory", type=Path, nargs="?", metavar="DIR", help="or a volume, or the directory of a run"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of tables")


def run(args: argparse.Namespace) -> int:
    """Print what left each silo.

    :raises ManifestInvalid: when there is no audit log.
    :raises AuditBroken: when the chain of one does not hold; nothing is printed then.
    """
    found = [receipts_of(volume) for volume in volumes(args.dir or args.directory)]
    if args.json:
        print(json.dumps({"silos": [as_document(one) for one in found]}))
    else:
        print("\n\n".join(map(_text, found)) or "nothing has left: there is no audit log yet")
    return 0


def _text(found: Receipts) -> str:
    lines = count_text(found.lines, "line")
    job = "" if found.job is None else f", job {plain_line(found.job)}"
    summary = (
        f"silo {plain_line(found.silo)}{job}: {count_text(len(found.departures), 'update')}, {found.bytes} bytes; the "
        f"audit log holds, {lines}, the last one's hash is {found.hash}"
    )
    if not found.departures:
        return summary
    rows = [HEADINGS, *(row for receipt in found.departures for row in _rows(receipt))]
    return "\n".join([summary, columns(rows, NUMBERS)])


def _rows(receipt: DepartureReceipt) -> Iterator[tuple[str, ...]]:
    """One for each kind; bytes are those of its tensors. An update of scalars alone has one, too."""
    kinds = receipt.kinds or {"scalars": {"blocks": 0, "bytes": 0}}
    for kind, count in kinds.items():
        yield (
            str(receipt.round),
            plain_line(receipt.phase),
            plain_line(receipt.step),
            plain_line(kind),
            str(count["blocks"]),
            str(count["bytes"]),
            plain_line(receipt.digest[:12]),
            plain_line(receipt.time[:SECONDS]),
            plain_line(receipt.outcome),
        )
