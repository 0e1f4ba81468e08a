"""What a privacy ledger comes to: the institution's word on the budget, the charges that count, and their epsilon."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from reprlib import repr as shortened
from typing import Any, Self, get_args

from fedsilo.api.differential_privacy import PrivacyUnit
from fedsilo.privacy.accounting import epsilon_of
from fedsilo.privacy.mechanism import Mechanism
from fedsilo.silo.audit_chain import GENESIS, AuditBroken

CENTURY_SECONDS = 100 * 365 * 86_400

YEARS = range(1970, 9000)
"""Years in which a charge can be: a period can be added to each."""


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

    @classmethod
    def from_line(cls, line: Mapping[str, Any]) -> Self:
        """The budget of a line.

        :raises ValueError: or KeyError, when no guard has written it.
        """
        epsilon, delta, seconds, unit = (line[name] for name in ("epsilon", "delta", "seconds", "unit"))
        if type(epsilon) not in (int, float) or not 0 < epsilon <= sys.float_info.max:
            raise ValueError(f"epsilon {shortened(epsilon)} is not a number above 0")
        if type(delta) not in (int, float) or not 0 < delta < 1:
            raise ValueError(f"delta {shortened(delta)} is not a number between 0 and 1")
        if seconds is not None and (type(seconds) is not int or seconds < 1):
            raise ValueError(f"seconds {shortened(seconds)} are not a whole number above 0")
        if unit not in get_args(PrivacyUnit):
            raise ValueError(f"unit {shortened(unit)} is none of {', '.join(get_args(PrivacyUnit))}")
        return cls(epsilon, delta, seconds, unit)

    @property
    def period(self) -> timedelta | None:
        """After which a charge does not count any more; None where it counts for ever, as after a century it does."""
        if self.seconds is None or self.seconds > CENTURY_SECONDS:
            return None
        return timedelta(seconds=self.seconds)

    def to_dict(self) -> dict[str, Any]:
        """The JSON document of this line in the ledger."""
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
        """The charge of a line; errors as of a budget."""
        job, uid, update, mechanisms = (line[name] for name in ("job", "uid", "update", "mechanisms"))
        if not all(isinstance(text, str) for text in (job, uid, update)) or not isinstance(mechanisms, list):
            raise ValueError("job, uid or update is no text, or mechanisms are no list")
        return cls(job, uid, update, tuple(Mechanism.from_dict(each) for each in mechanisms))

    def to_dict(self) -> dict[str, Any]:
        """The JSON document of this line in the ledger."""
        mechanisms = [each.to_dict() for each in self.mechanisms]
        return {"job": self.job, "uid": self.uid, "update": self.update, "mechanisms": mechanisms}


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
    def spent_epsilon(self) -> float:
        """Epsilon of all charges together, at the budget's delta; 0 without a budget."""
        return self._epsilon([charge for _, charge in self.charges])

    @property
    def remaining_epsilon(self) -> float:
        """What may still be spent, at least 0; infinite without a budget."""
        return float("inf") if self.budget is None else max(self.budget.epsilon - self.spent_epsilon, 0.0)

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

    def spending_forecast(self, most: int) -> list[tuple[datetime, float]]:
        """What will be spent from some times on, if nothing more is charged until then; none without a period.

        :param most: times, of which the last is that from which on nothing is spent.
        """
        period = None if self.budget is None else self.budget.period
        if period is None:
            return []
        charges = sorted(self.charges, key=lambda one: one[0])
        ends = sorted({math.ceil(len(charges) * part / most) for part in range(1, most + 1)} - {0})
        return [
            (charges[end - 1][0] + period, self._epsilon([charge for _, charge in charges[end:]]))
            for end in ends
        ]

    def projected_epsilon(self, mechanisms: Sequence[Mechanism]) -> float:
        """Epsilon of all charges with these mechanisms beside them; 0 without a budget."""
        before = self._mechanisms([charge for _, charge in self.charges])
        return 0.0 if self.budget is None else epsilon_of([*before, *mechanisms], self.budget.delta)

    def _epsilon(self, charges: Sequence[Charge]) -> float:
        return 0.0 if self.budget is None else epsilon_of(self._mechanisms(charges), self.budget.delta)

    @staticmethod
    def _mechanisms(charges: Sequence[Charge]) -> list[Mechanism]:
        return [mechanism for charge in charges for mechanism in charge.mechanisms]


def account_of(path: Path, lines: Sequence[tuple[Mapping[str, Any], str]], now: datetime) -> PrivacyAccount:
    """What the lines of a ledger come to now.

    :param path: of the ledger, for messages.
    :param lines: each with its digest.
    :raises AuditBroken: when one is not as a guard writes it.
    """
    budget: Budget | None = None
    charges = []
    for number, (line, _) in enumerate(lines, start=1):
        try:
            time = _time_of(line)
            if line["event"] == "budget":
                budget = Budget.from_line(line)
            elif line["event"] == "charge":
                charges.append((time, Charge.from_line(line)))
            else:
                raise ValueError(f"event {shortened(line['event'])} is neither budget nor charge")
        except (ValueError, KeyError) as error:
            raise AuditBroken(
                f"{path}: line {number} is not as a guard writes it ({error}); find out who did"
            ) from None
    if budget is not None and budget.period is not None:
        since = now - budget.period
        charges = [(time, charge) for time, charge in charges if time > since]
    return PrivacyAccount(budget, tuple(charges), len(lines), lines[-1][1] if lines else GENESIS)


def _time_of(line: Mapping[str, Any]) -> datetime:
    time = line["time"]
    found = datetime.fromisoformat(time) if isinstance(time, str) else None
    if found is None or found.utcoffset() is None or found.year not in YEARS:
        raise ValueError(f"time {shortened(time)} is none of this era, with an offset from UTC")
    return found
