"""The campaign that kills guards while a budget is spent: what it calls a violation."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from fedsilo.local.workdir import RunDirectory
from fedsilo.privacy.mechanism import Mechanism
from fedsilo.silo.privacy_account import Budget, Charge
from fedsilo.silo.privacy_ledger import PrivacyLedger
from tests.faults.budget import DATASET, DELTA, KilledMachine, check
from tests.faults.outcome import Violation

NOW = datetime(2026, 11, 26, 12, tzinfo=UTC)


def machine(
    root: Path, charged: Sequence[str], departed: Sequence[str], seconds: float = 1.0
) -> KilledMachine:
    """A silo's directory with these updates.

    :param seconds: from the charges to the departures.
    """
    made = KilledMachine(root, RunDirectory(root / "run"), random.Random(0))
    ledger = PrivacyLedger(made.directory.ledgers, DATASET)
    ledger.set_budget(Budget(100.0, DELTA), NOW)
    for update in charged:
        ledger.charge(Charge("federation/private", "uid", update, (Mechanism(2.0, 0.25, 4),)), NOW)
    audit = made.directory.agents / "uid" / "volume" / "audit"
    audit.mkdir(parents=True)
    time = (NOW + timedelta(seconds=seconds)).isoformat()
    lines = [{"event": "departure", "digest": update, "time": time} for update in departed]
    (audit / "log.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return made


def test_books_that_agree_have_one_figure(tmp_path: Path) -> None:
    books = check(machine(tmp_path, ["a", "b"], ["a", "b", "b"]))
    assert (books.departures, books.departed) == (2, books.account.spent_epsilon)


@pytest.mark.parametrize(
    ("charged", "departed", "seconds", "said"),
    [
        (["a"], ["a", "b"], 1.0, "1 departures without a charge"),
        (["a", "b"], ["a"], 1.0, "1 charges without a departure"),
        (["a"], ["a"], -1.0, "1 departures before their charge"),
    ],
)
def test_books_that_do_not_agree_are_a_violation(
    tmp_path: Path, charged: Sequence[str], departed: Sequence[str], seconds: float, said: str
) -> None:
    with pytest.raises(Violation, match=said):
        check(machine(tmp_path, charged, departed, seconds))
