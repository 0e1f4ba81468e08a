"""`fedsilo silo budget`: what was learned of an institution's datasets, over all jobs."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fedsilo.cli.cluster.text import plain
from fedsilo.cli.columns import columns
from fedsilo.silo.privacy_ledger import PrivacyAccount, PrivacyLedger

HEADINGS = ("DATASET", "EPSILON", "DELTA", "SPENT", "LEFT", "BY JOB")
NUMBERS = (1, 2, 3, 4)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The silo's directory."""
    parser.add_argument(
        "directory", type=Path, metavar="DIR", help="directory of the silo, or of a run on one machine"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")


def run(args: argparse.Namespace) -> int:
    """Print the budgets of all datasets that have a ledger.

    :raises AuditBroken: when the chain of one does not hold; nothing is printed then.
    """
    now = datetime.now(UTC)
    found = {ledger: ledger.account(now) for ledger in _ledgers(args.directory)}
    if args.json:
        print(json.dumps({"datasets": [_document(ledger, account) for ledger, account in found.items()]}))
    elif not found:
        print(
            f"nothing is on record in {args.directory}: no dataset has a budget that anything was charged to"
        )
    else:
        rows = [HEADINGS, *(_row(ledger, account) for ledger, account in found.items())]
        print(columns(rows, NUMBERS))
    return 0


def _ledgers(directory: Path) -> Iterator[PrivacyLedger]:
    """Those of an institution's directory, or of the guards of a run."""
    for path in sorted([*directory.glob("**/ledgers/*.jsonl")]):
        yield PrivacyLedger(path.parent, path.stem)


def _row(ledger: PrivacyLedger, account: PrivacyAccount) -> tuple[str, ...]:
    jobs = ", ".join(f"{plain(name)} {epsilon:.4g}" for name, epsilon in account.by_job().items())
    if account.budget is None:
        return plain(ledger.dataset), "-", "-", "-", "-", jobs
    budget = account.budget
    figures = f"{budget.epsilon:g}", f"{budget.delta:g}", f"{account.spent:.4g}", f"{account.left:.4g}"
    return plain(ledger.dataset), *figures, jobs or "-"


def _document(ledger: PrivacyLedger, account: PrivacyAccount) -> dict[str, Any]:
    budget = account.budget
    return {
        "dataset": ledger.dataset,
        "ledger": str(ledger.path),
        "budget": None if budget is None else budget.to_dict(),
        "spent": None if budget is None else account.spent,
        "left": None if budget is None else account.left,
        "jobs": account.by_job(),
    }
