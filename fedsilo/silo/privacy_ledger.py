"""What was learned of a dataset so far, over all jobs: the institution's ledger, which outlives each of them.

A file for each dataset, chained as the audit log is. A line is the institution's word on the budget, or a charge: an
update that is about to leave, with the mechanisms that its examples went through. It is on the disk before the update
leaves, and once for each update, however often that is sent. What is spent is the epsilon of all mechanisms together at
the budget's delta (`fedsilo.privacy.accounting`), which is less than the sum of the jobs' own.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Self

from fedsilo.api.differential_privacy import PrivacyUnit
from fedsilo.durable import append_durably, make_directory, sync_directory, truncate
from fedsilo.errors import PolicyRefused
from fedsilo.locking import exclusive
from fedsilo.privacy.accounting import epsilon_of
from fedsilo.privacy.mechanism import Mechanism
from fedsilo.silo.audit_chain import GENESIS, content_of, line_digest, verified, whole_lines


class BudgetExceeded(PolicyRefused):
    """More would be learned of a dataset than its institution permits."""

    reason = "BudgetExceeded"


@dataclass(frozen=True)
class Budget:
    """How much may be learned of one example or person of a dataset.

    :param seconds: after which a charge does not count any more; None where it counts for ever.
    :param unit: of what; what is charged under this budget protects just that.
    """

    epsilon: float
    delta: float
    seconds: int | None = None
    unit: PrivacyUnit = "example"

    def to_dict(self) -> dict[str, Any]:
        """As the ledger has it."""
        return {"epsilon": self.epsilon, "delta": self.delta, "seconds": self.seconds, "unit": self.unit}


@dataclass(frozen=True)
class Charge:
    """An update that is about to leave.

    :param job: name of its job, for people.
    :param uid: identity of the job.
    :param update: digest of the signed update.
    :param mechanisms: that its examples went through.
    """

    job: str
    uid: str
    update: str
    mechanisms: tuple[Mechanism, ...]

    @classmethod
    def from_line(cls, line: Mapping[str, Any]) -> Self:
        """The charge of a line."""
        mechanisms = tuple(Mechanism.from_dict(each) for each in line["mechanisms"])
        return cls(line["job"], line["uid"], line["update"], mechanisms)


@dataclass(frozen=True)
class PrivacyAccount:
    """What the ledger comes to at a time.

    :param budget: None where the institution has stated none.
    :param charges: those that count, with their times.
    :param lines: of the ledger, and the hash of the last of them.
    """

    budget: Budget | None = None
    charges: tuple[tuple[datetime, Charge], ...] = ()
    lines: int = 0
    hash: str = GENESIS

    @property
    def spent(self) -> float:
        """Epsilon of all charges together, at the budget's delta; 0 without a budget."""
        return self._epsilon([charge for _, charge in self.charges])

    @property
    def left(self) -> float:
        """What may still be spent, at least 0; infinite without a budget."""
        return float("inf") if self.budget is None else max(self.budget.epsilon - self.spent, 0.0)

    def by_job(self) -> dict[str, float]:
        """Job -> epsilon of its own charges; together they come to less than the sum."""
        names = dict.fromkeys(charge.job for _, charge in self.charges)
        return {
            name: self._epsilon([charge for _, charge in self.charges if charge.job == name])
            for name in names
        }

    def of_job(self, uid: str) -> float:
        """Epsilon of the charges of the job with this identity."""
        return self._epsilon([charge for _, charge in self.charges if charge.uid == uid])

    def later(self, most: int) -> list[tuple[datetime, float]]:
        """What will be spent from some times on, if nothing more is charged until then; none without a period.

        :param most: times, of which the last is that from which on nothing is spent.
        """
        if self.budget is None or self.budget.seconds is None:
            return []
        period, charges = timedelta(seconds=self.budget.seconds), sorted(self.charges, key=lambda one: one[0])
        ends = sorted({math.ceil(len(charges) * part / most) for part in range(1, most + 1)} - {0})
        return [
            (charges[end - 1][0] + period, self._epsilon([charge for _, charge in charges[end:]]))
            for end in ends
        ]

    def require(self, mechanisms: Sequence[Mechanism], what: str) -> None:
        """Return if these may be added.

        :param what: would be, for the message.
        :raises BudgetExceeded: with the figures.
        """
        if self.budget is None:
            return
        after = epsilon_of(
            [*self._mechanisms([charge for _, charge in self.charges]), *mechanisms], self.budget.delta
        )
        if after > self.budget.epsilon:
            raise BudgetExceeded(
                f"{what} would bring epsilon to {after:.4g} at delta {self.budget.delta:g}, and the institution "
                f"permits {self.budget.epsilon:g}, of which {self.spent:.4g} is spent; ask it for more, or wait until "
                "a period has passed"
            )

    def _epsilon(self, charges: Sequence[Charge]) -> float:
        return 0.0 if self.budget is None else epsilon_of(self._mechanisms(charges), self.budget.delta)

    @staticmethod
    def _mechanisms(charges: Sequence[Charge]) -> list[Mechanism]:
        return [mechanism for charge in charges for mechanism in charge.mechanisms]


class PrivacyLedger:
    """The ledger of one dataset; several processes may use it at a time.

    :param directory: of an institution's ledgers.
    """

    def __init__(self, directory: Path, dataset: str) -> None:
        make_directory(directory)
        self.dataset = dataset
        self.path = directory / f"{dataset}.jsonl"

    def account(self, now: datetime) -> PrivacyAccount:
        """What it comes to now.

        :raises AuditBroken: when the ledger was changed.
        """
        with self._locked():
            return self._account(self._lines(), now)

    def set_budget(self, budget: Budget, now: datetime) -> None:
        """Put the institution's word on record, if it is another than before; errors as `charge`."""
        with self._locked():
            lines = self._lines()
            if self._account(lines, now).budget != budget:
                self._append(lines, now, "budget", budget.to_dict())

    def charge(self, charge: Charge, now: datetime) -> bool:
        """Put an update on record before it leaves; False where it is already.

        :raises BudgetExceeded: nothing is on record then, and nothing may leave.
        :raises AuditBroken: when the ledger was changed.
        :raises OSError: when the disk is full; the ledger is as before then.
        """
        with self._locked():
            lines = self._lines()
            known = {(line["uid"], line["update"]) for line, _ in lines if line["event"] == "charge"}
            if (charge.uid, charge.update) in known:
                return False
            what = f"dataset {self.dataset}: an update of job {charge.job}"
            self._account(lines, now).require(charge.mechanisms, what)
            mechanisms = [each.to_dict() for each in charge.mechanisms]
            facts = {"job": charge.job, "uid": charge.uid, "update": charge.update, "mechanisms": mechanisms}
            self._append(lines, now, "charge", facts)
            return True

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with exclusive(self.path.with_suffix(".lock")):
            yield

    def _lines(self) -> list[tuple[dict[str, Any], str]]:
        """All lines and their digests; a torn last one, whose update has not left, is removed."""
        content = content_of(self.path)
        whole = whole_lines(content)
        if len(whole) < len(content):
            truncate(self.path, len(whole))
        return list(verified(self.path, whole))

    def _account(self, lines: Sequence[tuple[dict[str, Any], str]], now: datetime) -> PrivacyAccount:
        budget: Budget | None = None
        charges = []
        for line, _ in lines:
            if line["event"] == "budget":
                budget = Budget(line["epsilon"], line["delta"], line["seconds"], line["unit"])
            else:
                charges.append((datetime.fromisoformat(line["time"]), Charge.from_line(line)))
        if budget is not None and budget.seconds is not None:
            since = now - timedelta(seconds=budget.seconds)
            charges = [(time, charge) for time, charge in charges if time > since]
        return PrivacyAccount(budget, tuple(charges), len(lines), lines[-1][1] if lines else GENESIS)

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
        append_durably(self.path, json.dumps({**line, "hash": line_digest(line)}, sort_keys=True))
        sync_directory(self.path.parent)
