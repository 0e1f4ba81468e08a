"""What was learned of a dataset so far, over all jobs: the institution's ledger, which outlives each of them.

A file for each dataset, chained as the audit log is. A line is the institution's word on the budget, or a charge: an
update that is about to leave, with the mechanisms that its examples went through. It is on the disk before the update
leaves, and once for each update, however often that is sent. What is spent is the epsilon of all mechanisms together at
the budget's delta (`fedsilo.privacy.accounting`), which is less than the sum of the jobs' own. A line that no guard
writes breaks the ledger, and so does one that an audit log knows of and that is gone (`fedsilo.silo.ledger_head`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fedsilo.api.patterns import RFC1123_SUBDOMAIN
from fedsilo.errors import PolicyRefused
from fedsilo.files.durable import (
    append_durably,
    make_own_directory,
    sync_directory,
    translate_read_errors,
    truncate,
)
from fedsilo.files.locking import hold_exclusive_lock
from fedsilo.silo.audit_chain import (
    GENESIS,
    AuditBroken,
    content_of,
    line_digest,
    text_of,
    verified_lines,
    whole_lines,
)
from fedsilo.silo.ledger_head import HeadStore, LedgerHead
from fedsilo.silo.privacy_account import Budget, Charge, PrivacyAccount, account_of

SUFFIX = ".jsonl"
"""What the names of ledgers end with; before it comes that of the dataset."""

DATASET = re.compile(RFC1123_SUBDOMAIN)


class BudgetExceeded(PolicyRefused):
    """More would be learned of a dataset than its institution permits."""

    reason = "BudgetExceeded"


class PrivacyLedger:
    """The ledger of one dataset; several processes may use it at a time.

    :param directory: of an institution's ledgers.
    :param heads: how far it has come, by what audit logs know.
    :raises FileDamaged: when something else has the name of the directory.
    """

    def __init__(self, directory: Path, dataset: str, heads: Iterable[LedgerHead] = ()) -> None:
        make_own_directory(directory, "remove it: ledgers lie in a directory of that name")
        self.dataset = dataset
        self.path = directory / f"{dataset}{SUFFIX}"
        self.heads = tuple(heads)

    def account(self, now: datetime) -> PrivacyAccount:
        """What it comes to now.

        :raises AuditBroken: when the ledger was changed, or has lost its end.
        :raises FileDamaged: when something else has the name of its lock.
        """
        with self._hold_lock():
            return account_of(self.path, self._lines(), now)

    def set_budget(self, budget: Budget, now: datetime) -> None:
        """Put the institution's word on record, if it is another than before; errors as `charge`."""
        with self._hold_lock():
            lines = self._lines()
            if account_of(self.path, lines, now).budget != budget:
                self._append(lines, now, "budget", budget.to_dict())

    def charge(self, charge: Charge, now: datetime) -> bool:
        """Put an update on record before it leaves; False where it is already.

        What all mechanisms come to together takes a while to compute, in which nobody waits for the ledger.

        :raises BudgetExceeded: nothing is on record then, and nothing may leave.
        :raises PolicyRefused: when a figure of its mechanisms is out of range; nothing is on record then either.
        :raises AuditBroken: when the ledger was changed, or has lost its end.
        :raises FileDamaged: when something else has the name of its lock.
        :raises OSError: when the disk is full; the ledger is as before then.
        """
        try:
            Charge.from_line(charge.to_dict())
        except ValueError as error:
            raise PolicyRefused(f"dataset {self.dataset}: {error}; nothing is charged") from error
        permitted_after: str | None = None
        while True:
            with self._hold_lock():
                lines = self._lines()
                account = account_of(self.path, lines, now)
                known = [(line["uid"], line["update"]) for line, _ in lines if line["event"] == "charge"]
                if (charge.uid, charge.update) in known:
                    return False
                if account.hash == permitted_after:
                    self._append(lines, now, "charge", charge.to_dict())
                    return True
            self._require_permitted(charge, account)
            permitted_after = account.hash

    def _require_permitted(self, charge: Charge, account: PrivacyAccount) -> None:
        budget, after = account.budget, account.projected_epsilon(charge.mechanisms)
        if budget is not None and after > budget.epsilon:
            raise BudgetExceeded(
                f"dataset {self.dataset}: an update of job {charge.job} would bring epsilon to {after:.4g} at delta "
                f"{budget.delta:g}, and the institution permits {budget.epsilon:g}, of which "
                f"{account.spent_epsilon:.4g} is spent; ask it for more, or wait until a period has passed"
            )

    @contextmanager
    def _hold_lock(self) -> Iterator[None]:
        lock = self.path.with_suffix(".lock")
        with translate_read_errors(lock, "let this user write it"), hold_exclusive_lock(lock):
            yield

    def _lines(self) -> list[tuple[dict[str, Any], str]]:
        """All lines and their digests; a torn last one, whose update has not left, is removed."""
        content = content_of(self.path)
        whole = whole_lines(content)
        lines = list(verified_lines(self.path, whole))
        for head in self.heads:
            head.require_in(self.path, [digest for _, digest in lines])
        if len(whole) < len(content):
            truncate(self.path, len(whole))
        return lines

    def _append(
        self, lines: Sequence[tuple[dict[str, Any], str]], now: datetime, event: str, facts: Mapping[str, Any]
    ) -> None:
        line = {
            "seq": len(lines),
            "time": now.astimezone(UTC).isoformat(timespec="milliseconds"),
            "event": event,
            **facts,
            "previous": lines[-1][1] if lines else GENESIS,
        }
        append_durably(self.path, text_of(line, line_digest(line)))
        sync_directory(self.path.parent)


def ledgers_in(directory: Path, audited: HeadStore) -> Iterator[PrivacyLedger]:
    """The ledgers of an institution's directory of them, by name.

    :param audited: what the institution's audit logs know of them.
    :raises AuditBroken: when a file is called like a ledger of what cannot be a dataset, or an audit log was changed.
    """
    for path in sorted(directory.glob(f"*{SUFFIX}")):
        if not DATASET.fullmatch(path.stem):
            raise AuditBroken(f"{path}: is no ledger, since no dataset can have that name; remove it")
        yield PrivacyLedger(directory, path.stem, audited.of(path.stem))
