"""The ledger of a dataset: every update is charged before it leaves, once, and no more than the institution permits."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from multiprocessing import get_context
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsilo import durable
from fedsilo.privacy.accounting import epsilon_of
from fedsilo.privacy.mechanism import Mechanism
from fedsilo.silo.audit_chain import AuditBroken
from fedsilo.silo.privacy_ledger import Budget, BudgetExceeded, Charge, PrivacyLedger

NOW = datetime(2026, 11, 26, 12, tzinfo=UTC)
ROUND = (Mechanism(2.0, 0.1, 10),)
BUDGET = Budget(5.0, 1e-4)


def charge_of(number: int, job: str = "digits") -> Charge:
    return Charge(job, f"uid-{job}", f"{number:064x}", ROUND)


def ledger_with(directory: Path, budget: Budget = BUDGET, charges: int = 0) -> PrivacyLedger:
    ledger = PrivacyLedger(directory, "scans")
    ledger.set_budget(budget, NOW)
    for number in range(charges):
        ledger.charge(charge_of(number), NOW)
    return ledger


def test_what_is_spent_is_the_epsilon_of_all_charges_together(tmp_path: Path) -> None:
    ledger = ledger_with(tmp_path, charges=3)
    ledger.charge(charge_of(0, "other"), NOW)
    account = ledger.account(NOW)
    assert account.spent == epsilon_of(ROUND * 4, 1e-4)
    assert account.by_job() == {"digits": epsilon_of(ROUND * 3, 1e-4), "other": epsilon_of(ROUND, 1e-4)}
    assert account.spent < sum(account.by_job().values())
    assert account.left == 5.0 - account.spent


def test_an_update_is_charged_once_however_often_it_is_sent(tmp_path: Path) -> None:
    ledger = ledger_with(tmp_path)
    assert ledger.charge(charge_of(1), NOW)
    before = ledger.path.read_bytes()
    assert not PrivacyLedger(tmp_path, "scans").charge(charge_of(1), NOW + timedelta(days=1))
    assert ledger.path.read_bytes() == before


def test_what_would_exceed_the_budget_is_refused_with_the_figures_and_not_on_record(tmp_path: Path) -> None:
    one = epsilon_of(ROUND, 1e-4)
    ledger = ledger_with(tmp_path, Budget(one * 1.1, 1e-4), charges=1)
    before = ledger.path.read_bytes()
    with pytest.raises(BudgetExceeded) as refused:
        ledger.charge(charge_of(1), NOW)
    both = epsilon_of(ROUND * 2, 1e-4)
    assert f"would bring epsilon to {both:.4g} at delta 0.0001" in str(refused.value)
    assert f"permits {one * 1.1:g}, of which {one:.4g} is spent" in str(refused.value)
    assert ledger.path.read_bytes() == before


def test_the_institution_raises_its_budget_and_that_is_a_line(tmp_path: Path) -> None:
    one = epsilon_of(ROUND, 1e-4)
    ledger = ledger_with(tmp_path, Budget(one, 1e-4), charges=1)
    ledger.set_budget(Budget(one, 1e-4), NOW)  # nothing new
    ledger.set_budget(Budget(2 * one, 1e-4), NOW)
    assert ledger.charge(charge_of(1), NOW)
    events = [json.loads(line)["event"] for line in ledger.path.read_text().splitlines()]
    assert events == ["budget", "charge", "budget", "charge"]


def test_a_charge_counts_for_the_period(tmp_path: Path) -> None:
    ledger = ledger_with(tmp_path, Budget(5.0, 1e-4, 3600), charges=1)
    assert ledger.account(NOW + timedelta(minutes=59)).spent > 0
    assert ledger.account(NOW + timedelta(minutes=61)).spent == 0


def test_with_a_period_it_is_known_what_will_be_spent_later(tmp_path: Path) -> None:
    ledger = ledger_with(tmp_path, Budget(5.0, 1e-4, 3600))
    for number in range(10):
        ledger.charge(charge_of(number), NOW + timedelta(minutes=number))
    account = ledger.account(NOW + timedelta(minutes=10))
    later = account.later(4)
    assert [moment - NOW for moment, _ in later] == [timedelta(minutes=60 + end - 1) for end in (3, 5, 8, 10)]
    for moment, spent in later:
        assert spent == ledger.account(moment).spent
        assert spent <= ledger.account(moment - timedelta(seconds=1)).spent
    assert later[-1][1] == 0
    assert ledger_with(tmp_path / "always", charges=1).account(NOW).later(4) == []


def _charge_all(directory: Path, job: str) -> None:
    for number in range(20):
        PrivacyLedger(directory, "scans").charge(charge_of(number, job), NOW)


def test_several_processes_charge_one_ledger(tmp_path: Path) -> None:
    """As the guards of several pods do, in one volume."""
    ledger = ledger_with(tmp_path, Budget(100.0, 1e-4))
    started = [
        get_context("spawn").Process(target=_charge_all, args=(tmp_path, f"job{number}"))
        for number in range(3)
    ]
    for process in started:
        process.start()
    for process in started:
        process.join(60)
    assert [process.exitcode for process in started] == [0, 0, 0]
    account = ledger.account(NOW)
    assert (len(account.charges), account.lines) == (60, 61)
    assert account.of_job("uid-job1") == epsilon_of(ROUND * 20, 1e-4)


def test_without_a_budget_nothing_is_refused(tmp_path: Path) -> None:
    ledger = PrivacyLedger(tmp_path, "scans")
    assert ledger.charge(charge_of(1), NOW)
    assert (ledger.account(NOW).spent, ledger.account(NOW).left) == (0.0, float("inf"))


@pytest.mark.parametrize("change", ["dropped", "changed", "swapped"])
def test_a_ledger_that_was_changed_is_refused(tmp_path: Path, change: str) -> None:
    ledger = ledger_with(tmp_path, charges=3)
    lines = ledger.path.read_text().splitlines()
    if change == "dropped":
        del lines[1]
    elif change == "changed":
        lines[1] = lines[1].replace('"noiseMultiplier": 2.0', '"noiseMultiplier": 9.0')
    else:
        lines[1], lines[2] = lines[2], lines[1]
    ledger.path.write_text("\n".join(lines) + "\n")
    with pytest.raises(AuditBroken, match="does not follow from the line before it"):
        ledger.charge(charge_of(7), NOW)


@settings(max_examples=20, deadline=None)
@given(cut=st.integers(1, 400))
def test_a_torn_last_line_is_of_an_update_that_has_not_left(
    tmp_path_factory: pytest.TempPathFactory, cut: int
) -> None:
    ledger = ledger_with(tmp_path_factory.mktemp("ledger"), charges=2)
    whole = ledger.path.read_bytes()
    last = whole.rindex(b"\n", 0, -1) + 1
    ledger.path.write_bytes(whole[: max(len(whole) - cut, last)])
    assert ledger.charge(charge_of(1), NOW)
    assert ledger.account(NOW).spent == epsilon_of(ROUND * 2, 1e-4)


def test_a_disk_that_is_full_leaves_the_ledger_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = ledger_with(tmp_path, charges=1)
    before = ledger.path.read_bytes()

    def full(path: Path, line: str) -> None:
        with path.open("a") as file:
            file.write(line[:10])
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("fedsilo.silo.privacy_ledger.append_durably", full)
        with pytest.raises(OSError, match="No space left"):
            ledger.charge(charge_of(1), NOW)
    assert durable.read_file(ledger.path) != before
    assert ledger.charge(charge_of(1), NOW)
    assert len(ledger.path.read_text().splitlines()) == 3


def test_the_ledger_says_of_what_the_budget_is(tmp_path: Path) -> None:
    ledger = ledger_with(tmp_path, Budget(5.0, 1e-4, None, "person"), charges=1)
    assert json.loads(ledger.path.read_text().splitlines()[0])["unit"] == "person"
    budget = ledger.account(NOW).budget
    assert budget is not None
    assert budget.unit == "person"
    assert ledger_with(tmp_path).account(NOW).spent == epsilon_of(ROUND, 1e-4)  # charges count on
