"""What the audit logs of an institution know of its ledgers, and that a lost end is found by it wherever one looks."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from fedsilo.institution.budgets import BudgetReader
from fedsilo.institution.directory import SiloDirectory
from fedsilo.privacy.mechanism import Mechanism
from fedsilo.silo.audit_chain import AuditBroken
from fedsilo.silo.ledger_head import HeadStore, LedgerHead
from fedsilo.silo.privacy_account import Budget, Charge
from fedsilo.silo.privacy_ledger import PrivacyLedger
from fedsilo_agent.guard.audit import AuditLog

NOW = datetime(2026, 11, 26, 12, tzinfo=UTC)


class Institution:
    """A silo's directory with one ledger, and the audit log of a job that was charged to it."""

    def __init__(self, root: Path) -> None:
        self.directory = SiloDirectory(root)
        self.directory.prepare()
        self.ledger = PrivacyLedger(self.directory.ledgers, "scans")
        self.ledger.set_budget(Budget(50.0, 1e-4), NOW)
        self.log = AuditLog(self.directory.volume("0123").audit)

    def depart(self, number: int) -> LedgerHead:
        """Charge an update, and put its departure on record."""
        update = f"{number:064x}"
        self.ledger.charge(Charge("digits", "uid", update, (Mechanism(2.0),)), NOW)
        account = self.ledger.account(NOW)
        head = LedgerHead("scans", account.lines, account.hash)
        self.log.write("departure", task=f"t{number}", digest=update, round=number, ledger=head.to_dict())
        return head

    def cut(self, lines: int) -> None:
        content = self.ledger.path.read_bytes().splitlines(keepends=True)
        self.ledger.path.write_bytes(b"".join(content[:lines]))


def test_the_last_departure_that_was_charged_says_how_far_the_ledger_had_come(tmp_path: Path) -> None:
    here = Institution(tmp_path)
    audited = HeadStore(here.directory.ledgers)
    assert audited.of("scans") == ()
    here.depart(1)
    second = here.depart(2)
    here.log.write("acknowledged", task="t2", digest="0" * 64)
    assert audited.of("scans") == (second,)
    assert audited.of("others") == ()
    third = here.depart(3)
    assert audited.of("scans") == (third,)
    assert AuditLog(here.directory.volume("0123").audit).record.ledger == third


def test_an_institution_finds_that_a_ledger_lost_its_end(tmp_path: Path) -> None:
    here = Institution(tmp_path)
    for number in range(3):
        here.depart(number)
    reader = BudgetReader(here.directory)
    (status,) = reader.read([], NOW)
    assert status.lines == 4
    here.cut(2)
    with pytest.raises(AuditBroken, match=r"scans\.jsonl: has lost its end"):
        list(reader.read([], NOW))


def test_a_log_that_was_changed_is_no_witness(tmp_path: Path) -> None:
    here = Institution(tmp_path)
    here.depart(1)
    here.log.path.write_text(here.log.path.read_text().replace('"lines": 2', '"lines": 1'))
    with pytest.raises(AuditBroken, match="line 1 does not follow"):
        HeadStore(here.directory.ledgers).of("scans")


def test_the_ledger_of_a_run_has_the_log_of_its_own_silo_as_its_witness(tmp_path: Path) -> None:
    for silo in ("north", "south"):
        ledger = PrivacyLedger(tmp_path / "silos" / silo / "guard" / "ledgers", "scans")
        ledger.set_budget(Budget(1.0, 1e-4), NOW)
        account = ledger.account(NOW)
        head = LedgerHead("scans", account.lines, account.hash).to_dict()
        log = AuditLog(tmp_path / "silos" / silo / "audit")
        log.write("departure", task="t", digest=silo, round=1, ledger=head)
        (known,) = HeadStore(ledger.path.parent).of("scans")
        assert known.to_dict() == head


@pytest.mark.parametrize(
    "fact", [None, "scans", [], {}, {"dataset": "scans", "lines": 0, "hash": ""}, {"dataset": 1}]
)
def test_what_is_no_head_says_nothing(fact: object) -> None:
    assert LedgerHead.of_line({"event": "departure", "ledger": fact}) is None
