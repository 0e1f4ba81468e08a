"""The ledger of a dataset: every update is charged before it leaves, once, and no more than the institution permits."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsilo.errors import FileDamaged, PolicyRefused
from fedsilo.files import durable
from fedsilo.privacy.accounting import epsilon_of
from fedsilo.privacy.mechanism import Mechanism
from fedsilo.silo.audit_chain import GENESIS, AuditBroken, line_digest
from fedsilo.silo.ledger_head import HeadStore, LedgerHead
from fedsilo.silo.privacy_account import Budget, Charge
from fedsilo.silo.privacy_ledger import BudgetExceeded, PrivacyLedger, ledgers_in

NOW = datetime(2026, 11, 26, 12, tzinfo=UTC)
ROUND = (Mechanism(2.0, 0.1, 10),)
BUDGET = Budget(5.0, 1e-4)


known_epsilon = cache(lambda mechanisms, delta: epsilon_of(mechanisms, delta))


@pytest.fixture(autouse=True, scope="module")
def epsilon_once() -> Iterator[None]:
    """A ledger computes it anew at every look, of the same few charges here; each takes a fifth of a second."""
    with pytest.MonkeyPatch.context() as patch:
        known = lambda mechanisms, delta: known_epsilon(tuple(mechanisms), delta)  # noqa: E731
        patch.setattr("fedsilo.silo.privacy_account.epsilon_of", known)
        yield


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
    assert account.spent_epsilon == epsilon_of(ROUND * 4, 1e-4)
    assert account.by_job() == {"digits": epsilon_of(ROUND * 3, 1e-4), "other": epsilon_of(ROUND, 1e-4)}
    assert account.spent_epsilon < sum(account.by_job().values())
    assert account.remaining_epsilon == 5.0 - account.spent_epsilon


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
    assert ledger.account(NOW + timedelta(minutes=59)).spent_epsilon > 0
    assert ledger.account(NOW + timedelta(minutes=61)).spent_epsilon == 0


def test_with_a_period_it_is_known_what_will_be_spent_later(tmp_path: Path) -> None:
    ledger = ledger_with(tmp_path, Budget(5.0, 1e-4, 3600))
    for number in range(10):
        ledger.charge(charge_of(number), NOW + timedelta(minutes=number))
    account = ledger.account(NOW + timedelta(minutes=10))
    later = account.spending_forecast(4)
    assert [moment - NOW for moment, _ in later] == [timedelta(minutes=60 + end - 1) for end in (3, 5, 8, 10)]
    for moment, spent in later:
        assert spent == ledger.account(moment).spent_epsilon
        assert spent <= ledger.account(moment - timedelta(seconds=1)).spent_epsilon
    assert later[-1][1] == 0
    assert ledger_with(tmp_path / "always", charges=1).account(NOW).spending_forecast(4) == []


def _charge_all(directory: Path, job: str) -> None:
    for number in range(8):
        PrivacyLedger(directory, "scans").charge(charge_of(number, job), NOW)


@pytest.mark.thorough
def test_several_processes_charge_one_ledger(tmp_path: Path) -> None:
    """Several processes charge as the guards of several pods do, in one volume."""
    ledger = ledger_with(tmp_path, Budget(100.0, 1e-4))
    started = [
        get_context("spawn").Process(target=_charge_all, args=(tmp_path, f"job{number}"))
        for number in range(2)
    ]
    for process in started:
        process.start()
    for process in started:
        process.join(60)
    assert [process.exitcode for process in started] == [0, 0]
    account = ledger.account(NOW)
    assert (len(account.charges), account.lines) == (16, 17)
    assert account.of_job("uid-job1") == epsilon_of(ROUND * 8, 1e-4)


def test_without_a_budget_nothing_is_refused(tmp_path: Path) -> None:
    ledger = PrivacyLedger(tmp_path, "scans")
    assert ledger.charge(charge_of(1), NOW)
    assert (ledger.account(NOW).spent_epsilon, ledger.account(NOW).remaining_epsilon) == (0.0, float("inf"))


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
    assert ledger.account(NOW).spent_epsilon == epsilon_of(ROUND * 2, 1e-4)


def test_a_disk_that_is_full_leaves_the_ledger_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = ledger_with(tmp_path, charges=1)
    before = ledger.path.read_bytes()

    def fail_on_full_disk(path: Path, line: str) -> None:
        with path.open("a") as file:
            file.write(line[:10])
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("fedsilo.silo.privacy_ledger.append_durably", fail_on_full_disk)
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
    assert ledger_with(tmp_path).account(NOW).spent_epsilon == epsilon_of(ROUND, 1e-4)  # charges count on


def chained_lines(lines: list[dict[str, Any]]) -> bytes:
    """Lines of a ledger with a chain that holds, as somebody makes it who may write the file."""
    content, previous = b"", GENESIS
    for number, line in enumerate(lines):
        whole = line | {"seq": number, "previous": previous}
        previous = line_digest(whole)
        content += json.dumps(whole | {"hash": previous}, sort_keys=True).encode() + b"\n"
    return content


def lines_of(ledger: PrivacyLedger) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in ledger.path.read_text().splitlines()]
    return [{name: value for name, value in line.items() if name != "hash"} for line in lines]


NAN, INFINITY = float("nan"), float("inf")
ODD_BUDGETS: dict[str, list[Any]] = {
    "event": ["audit", None, 1, [], {}],
    "epsilon": [0, -1.0, NAN, INFINITY, 10**400, True, "4", None, []],
    "delta": [0, 1, -1e-3, NAN, 10**400, True, "x", None],
    "seconds": [0, -1, 1.5, True, "1h", []],
    "unit": ["silo", None, 1, []],
    "time": ["now", None],
}
ODD_MECHANISMS = [
    [Mechanism(2.0).to_dict() | {name: value}]
    for name in ("noiseMultiplier", "sampling", "times")
    for value in (0, -1, NAN, INFINITY, 5e-324, 1e308, 10**400, 10**18, True, "1", None)
]
ODD_CHARGES: dict[str, list[Any]] = {
    "time": ["now", "2026-11-26T12:00:00", 5, None, "9999-12-31T23:59:59+00:00"],
    **{name: [None, 7, ["x"], {}] for name in ("job", "uid", "update")},
    "mechanisms": [None, "x", 7, {}, [7], [{}], [[]], *ODD_MECHANISMS],
}


@pytest.mark.parametrize("event", ["budget", "charge"])
def test_a_line_that_no_guard_writes_breaks_the_ledger(tmp_path: Path, event: str) -> None:
    ledger = ledger_with(tmp_path, charges=2)
    lines = lines_of(ledger)
    place = [line["event"] for line in lines].index(event)
    figures = ODD_BUDGETS if event == "budget" else ODD_CHARGES
    for name, value in ((name, value) for name, values in figures.items() for value in values):
        odd = [line | ({name: value} if number == place else {}) for number, line in enumerate(lines)]
        ledger.path.write_bytes(chained_lines(odd))
        with pytest.raises(AuditBroken, match=rf"scans\.jsonl: line {place + 1} is not as a guard writes it"):
            ledger.account(NOW)
        with pytest.raises(AuditBroken):
            ledger.charge(charge_of(7), NOW)
    for missing in lines[place].keys() - {"seq", "previous", "event"}:
        odd = [dict(line) for line in lines]
        del odd[place][missing]
        ledger.path.write_bytes(chained_lines(odd))
        with pytest.raises(AuditBroken, match="is not as a guard writes it"):
            ledger.account(NOW)


@pytest.mark.parametrize(
    "text",
    [
        b"\n",
        b"{}\n",
        b"[]\n",
        b"7\n",
        b"\xff\xfe\x00\n\n",
        b'{"seq": 0\n',
        b"[" * 100_000 + b"\n",
        b'{"a": ' * 100_000 + b"\n",
        b"9" * 5000 + b"\n",
        b"NaN\n",
    ],
    ids=["empty", "object", "list", "number", "binary", "torn", "lists", "objects", "digits", "nan"],
)
def test_what_is_no_line_breaks_the_ledger(tmp_path: Path, text: bytes) -> None:
    ledger = ledger_with(tmp_path, charges=1)
    before = ledger.path.read_bytes()
    for content in (text + before, before + text + b"{}\n"):
        ledger.path.write_bytes(content)
        with pytest.raises(AuditBroken, match="does not follow from the line before it"):
            ledger.account(NOW)
        assert ledger.path.read_bytes() == content, "a person looks at it as it is"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b'"event": "charge"', b'"event": "charge", "event": "charge"'),
        (b'"update": "', b'"update": "0", "update": "'),
        (b'", "seq"', b'",  "seq"'),
        (b'"digits"', b'"d\\u0069gits"'),
    ],
    ids=["equal keys", "another value first", "a space", "an escape"],
)
def test_a_line_counts_as_it_was_written_to_the_byte(tmp_path: Path, before: bytes, after: bytes) -> None:
    ledger = ledger_with(tmp_path, charges=1)
    content = ledger.path.read_bytes()
    assert content.count(before) >= 1
    ledger.path.write_bytes(content.replace(before, after))
    with pytest.raises(AuditBroken):
        ledger.account(NOW)


def _sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


IN_ITS_PLACE: dict[str, Callable[[Path], object]] = {
    "pipe": os.mkfifo,
    "directory": Path.mkdir,
    "link to nothing": lambda path: path.symlink_to("nothing"),
    "link to a file": lambda path: path.symlink_to(__file__),
    "link to a device": lambda path: path.symlink_to("/dev/zero"),
    "link to itself": lambda path: path.symlink_to(path),
}


@pytest.mark.parametrize("make", [*IN_ITS_PLACE.values(), _sparse], ids=[*IN_ITS_PLACE, "terabyte"])
def test_what_is_no_ledger_and_has_its_name_breaks_it(tmp_path: Path, make: Callable[[Path], object]) -> None:
    ledger = PrivacyLedger(tmp_path, "scans")
    make(ledger.path)
    for use in (
        lambda: ledger.account(NOW),
        lambda: ledger.charge(charge_of(1), NOW),
        lambda: ledger.set_budget(BUDGET, NOW),
    ):
        with pytest.raises(AuditBroken, match=r"scans\.jsonl: .*find out"):
            use()


@pytest.mark.parametrize("make", IN_ITS_PLACE.values(), ids=IN_ITS_PLACE)
def test_what_is_no_lock_and_has_its_name_is_refused(tmp_path: Path, make: Callable[[Path], object]) -> None:
    ledger = PrivacyLedger(tmp_path, "scans")
    make(tmp_path / "scans.lock")
    with pytest.raises(FileDamaged, match=r"scans\.lock: "):
        ledger.charge(charge_of(1), NOW)


def test_ledgers_lie_in_a_directory_and_no_link_leads_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path)
    for name in ("file", "link"):
        with pytest.raises(FileDamaged, match=f"{name}: is not a directory"):
            PrivacyLedger(tmp_path / name, "scans")


def test_a_file_that_no_dataset_is_called_after_is_no_ledger(tmp_path: Path) -> None:
    ledger_with(tmp_path)
    (tmp_path / "scans (copy).jsonl").touch()
    with pytest.raises(AuditBroken, match=r"scans \(copy\)\.jsonl: is no ledger"):
        list(ledgers_in(tmp_path, HeadStore(tmp_path)))


def test_a_ledger_that_lost_its_end_is_refused_by_whoever_knows_how_far_it_had_come(tmp_path: Path) -> None:
    ledger = ledger_with(tmp_path, charges=3)
    account, content = ledger.account(NOW), ledger.path.read_bytes()
    head = LedgerHead("scans", account.lines, account.hash)
    knowing = PrivacyLedger(tmp_path, "scans", [head])
    for end in range(len(content)):
        if end == 0 or content[end - 1 : end] == b"\n":
            ledger.path.write_bytes(content[:end])
            assert ledger.account(NOW).lines < 4, "the chain holds"
            with pytest.raises(AuditBroken, match=r"has lost its end.*4 lines.*restore it from a backup"):
                knowing.charge(charge_of(7), NOW)
    ledger.path.write_bytes(content[:-1])
    with pytest.raises(AuditBroken, match="has lost its end"):
        knowing.account(NOW)
    assert ledger.path.read_bytes() == content[:-1], "what is left of the line is for a person to see"
    ledger.path.write_bytes(content)
    assert knowing.charge(charge_of(7), NOW)


def test_a_ledger_that_was_written_anew_is_refused(tmp_path: Path) -> None:
    ledger = ledger_with(tmp_path, charges=3)
    account = ledger.account(NOW)
    ledger.path.unlink()
    ledger_with(tmp_path, charges=2).charge(charge_of(9), NOW)
    with pytest.raises(AuditBroken, match="is another one"):
        PrivacyLedger(tmp_path, "scans", [LedgerHead("scans", account.lines, account.hash)]).account(NOW)


def test_nobody_waits_for_a_ledger_while_epsilon_is_computed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = ledger_with(tmp_path)
    lines: list[int] = []

    def epsilon(mechanisms: list[Mechanism], delta: float) -> float:
        """In which another guard charges the same ledger, once."""
        if not lines:
            lines.append(ledger.account(NOW).lines)
            ledger.charge(charge_of(2), NOW)
        return epsilon_of(mechanisms, delta)

    monkeypatch.setattr("fedsilo.silo.privacy_account.epsilon_of", epsilon)
    assert ledger.charge(charge_of(1), NOW)
    updates = [charge.update for _, charge in ledger.account(NOW).charges]
    assert (lines, updates) == ([1], [charge_of(2).update, charge_of(1).update])


def test_what_another_guard_charged_meanwhile_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = epsilon_of(ROUND, 1e-4)
    ledger = ledger_with(tmp_path, Budget(one * 1.1, 1e-4))
    others = [charge_of(2)]

    def epsilon(mechanisms: list[Mechanism], delta: float) -> float:
        if others:
            ledger.charge(others.pop(), NOW)
        return epsilon_of(mechanisms, delta)

    monkeypatch.setattr("fedsilo.silo.privacy_account.epsilon_of", epsilon)
    with pytest.raises(BudgetExceeded):
        ledger.charge(charge_of(1), NOW)
    assert [charge.update for _, charge in ledger.account(NOW).charges] == [charge_of(2).update]


@pytest.mark.parametrize("noise", [1e-9, 1e9, float("nan"), float("inf")])
def test_what_could_not_be_read_again_is_not_charged(tmp_path: Path, noise: float) -> None:
    ledger = ledger_with(tmp_path)
    with pytest.raises(PolicyRefused, match=r"noiseMultiplier .* is not a number from"):
        ledger.charge(Charge("digits", "uid", "0" * 64, (Mechanism(noise),)), NOW)
    assert ledger.account(NOW).lines == 1


def test_a_period_of_more_than_a_century_is_for_ever(tmp_path: Path) -> None:
    ledger = ledger_with(tmp_path, Budget(5.0, 1e-4, 10**15), charges=1)
    account = ledger.account(NOW)
    assert account.spent_epsilon > 0
    assert account.spending_forecast(4) == []
