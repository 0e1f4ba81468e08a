"""`fedsilo silo budget` shows what was learned of an institution's datasets, over all jobs."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fedsilo.api.budgets import BudgetStatus
from fedsilo.cli.budget_table import budget_row, budget_table
from fedsilo.cli.cluster.text import plain_line
from fedsilo.institution.budgets import budget_status, reserving
from fedsilo.institution.deciding import records
from fedsilo.institution.directory import SiloDirectory
from fedsilo.silo.ledger_head import HeadStore
from fedsilo.silo.privacy_account import PrivacyAccount
from fedsilo.silo.privacy_ledger import SUFFIX, PrivacyLedger, ledgers_in
from fedsilo.silo.receipts import SILOS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the directory whose privacy ledgers are read, and the output format."""
    parser.add_argument(
        "directory", type=Path, metavar="DIR", help="directory of the silo, or of a run on one machine"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")


def run(args: argparse.Namespace) -> int:
    """Print the budgets of all datasets that have a ledger.

    :raises AuditBroken: when one was changed, or has lost what an audit log knows of; nothing is printed then.
    """
    now, place = datetime.now(UTC), SiloDirectory(args.directory)
    parts = records(place) if place.agents.is_dir() else []
    jobs = {job.uid: job for part in parts if (job := reserving(part)) is not None}
    found: list[tuple[PrivacyLedger, PrivacyAccount, BudgetStatus | None]] = []
    silos: list[str | None] = []
    for silo, ledger in _ledgers(args.directory):
        silos.append(silo)
        account = ledger.account(now)
        here = {uid: job for uid, job in jobs.items() if job.spec.data.dataset == ledger.dataset}
        budget = account.budget
        status = None if budget is None else budget_status(ledger.dataset, budget, account, here)
        found.append((ledger, account, status))
    if args.json:
        documents = [_document(silo, *one) for silo, one in zip(silos, found, strict=True)]
        print(json.dumps({"datasets": documents}))
    elif not found:
        print(
            f"nothing is on record in {args.directory}: no dataset has a budget that anything was charged to"
        )
    else:
        named = [plain_line(silo or "-") for silo in silos]
        print(budget_table([_row(*one) for one in found], named if any(silos) else ()))
    return 0


def _ledgers(directory: Path) -> Iterator[tuple[str | None, PrivacyLedger]]:
    """Privacy ledgers of a run's guards, each with its silo, or of an institution's directory, which is of one silo."""
    for place in sorted({path.parent for path in directory.glob(f"**/ledgers/*{SUFFIX}")}):
        parts = place.relative_to(directory).parts
        silo = parts[parts.index(SILOS) + 1] if SILOS in parts[:-1] else None
        for ledger in ledgers_in(place, HeadStore(place)):
            yield silo, ledger


def _row(ledger: PrivacyLedger, account: PrivacyAccount, status: BudgetStatus | None) -> tuple[str, ...]:
    if status is not None:
        return budget_row(status)
    jobs = dict.fromkeys(charge.job for _, charge in account.charges)
    return (plain_line(ledger.dataset), *"------", ", ".join(map(plain_line, jobs)) or "-")


def _document(
    silo: str | None, ledger: PrivacyLedger, account: PrivacyAccount, status: BudgetStatus | None
) -> dict[str, Any]:
    budget = account.budget
    return {
        **({} if silo is None else {"silo": silo}),
        "dataset": ledger.dataset,
        "ledger": str(ledger.path),
        "budget": None if budget is None else budget.to_dict(),
        "spent": None if status is None else status.spent,
        "reserved": None if status is None else status.reserved,
        "left": None if status is None else status.left,
        "jobs": account.by_job(),
    }
