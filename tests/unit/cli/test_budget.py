"""What is spent of privacy budgets, as `kubectl fedsilo budget` and `fedsilo silo budget` show it."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from fedsilo.cli.budget import table
from fedsilo.cli.main import main
from fedsilo.files.json_files import write_with_digest
from fedsilo.institution.directory import SiloDirectory
from fedsilo.privacy.mechanism import Mechanism
from fedsilo.silo.privacy_account import Budget, Charge
from fedsilo.silo.privacy_ledger import PrivacyLedger
from tests.unit.cli.fake_kubectl import FakeKubectl
from tests.unit.cli.objects import silo
from tests.unit.institution.parts import UID, directory, record

NOW = datetime.now(UTC)


def with_budget(name: str, **changes: Any) -> dict[str, Any]:
    budget = {
        "dataset": "scans",
        "epsilon": 4,
        "delta": 1e-3,
        "spent": 1.91834,
        "reserved": 1.0817,
        "left": 1,
        "jobs": [
            {"uid": "a", "job": "research/digits", "spent": 1.5, "reserved": 0},
            {"uid": "b", "job": "research/new", "spent": 0.5, "reserved": 1.0817},
        ],
    }
    return silo(name) | {"status": {"privacyBudget": [budget | changes]}}


def test_one_line_for_each_budget_of_each_silo() -> None:
    assert table(
        [
            with_budget("south", unit="person", jobs=[], spent=0, reserved=0, left=4),
            silo("east"),
            with_budget("north"),
        ]
    ) == (
        "SILO              DATASET  UNIT     EPSILON  DELTA  SPENT  RESERVED  LEFT  BY JOB\n"
        "silo-north/north  scans    example        4  0.001  1.918     1.082     1  research/digits 1.5, "
        "research/new 0.5 (1.082 reserved)\n"
        "silo-south/south  scans    person         4  0.001      0         0     4  -"
    )


def test_silos_without_budgets_and_what_another_version_wrote_are_told() -> None:
    assert "no silo here says that it has a privacy budget" in table([silo("north")])
    assert "is not as this version writes it" in table([with_budget("north", spent="much")])


@pytest.mark.parametrize(
    ("arguments", "asked", "one"),
    [
        (["-A"], "get silos.fedsilo.io --all-namespaces --output=json", False),
        (
            ["north", "-n", "silo-north"],
            "get silos.fedsilo.io north --namespace silo-north --output=json",
            True,
        ),
    ],
)
def test_the_silos_that_were_asked_for_have_their_budgets_shown(
    kubectl: FakeKubectl, capsys: pytest.CaptureFixture[str], arguments: list[str], asked: str, one: bool
) -> None:
    (kubectl.json if one else kubectl.items)(asked, with_budget("north"))
    assert main(["budget", *arguments]) == 0
    assert "1.918" in capsys.readouterr().out


def spent_epsilon(place: SiloDirectory) -> float:
    """A silo with a charge, and a part that has begun and states more; what is spent."""
    ledger = PrivacyLedger(place.ledgers, "digits")
    ledger.set_budget(Budget(4.0, 1e-3), NOW)
    ledger.charge(Charge("research/old", "old", "a" * 64, (Mechanism(2.0),)), NOW)
    begun = record({"configuration": "c" * 64})
    begun["spec"]["job"]["spec"].setdefault("privacy", {})["differentialPrivacy"] = {
        "unit": "example",
        "epsilon": 1.5,
        "delta": 1e-3,
    }
    place.record(UID).parent.mkdir(parents=True)
    write_with_digest(place.record(UID), begun)
    return ledger.account(NOW).spent_epsilon


def test_a_machine_shows_what_its_admitted_jobs_may_yet_spend(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = directory(tmp_path / "silo")
    spent = spent_epsilon(place)
    assert main(["silo", "budget", str(place.root)]) == 0
    _, row = capsys.readouterr().out.splitlines()
    figures = row.split()[:7]
    assert figures == ["digits", "example", "4", "0.001", f"{spent:.4g}", "1.5", f"{4 - spent - 1.5:.4g}"]
    assert row.endswith("(1.5 reserved)")
    assert f"research/old {spent:.4g}, " in row
    assert main(["silo", "budget", str(place.root), "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["datasets"]
    assert (found["spent"], found["reserved"]) == (spent, 1.5)


def test_the_budgets_of_a_run_are_each_of_a_silo(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("north", "east"):
        ledger = PrivacyLedger(tmp_path / "silos" / name / "guard" / "ledgers", "digits")
        ledger.set_budget(Budget(4.0, 1e-3), NOW)
        ledger.charge(Charge("research/old", "old", "a" * 64, (Mechanism(2.0),)), NOW)
    assert main(["silo", "budget", str(tmp_path)]) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split()[:2] == ["SILO", "DATASET"]
    assert [row.split()[:2] for row in rows] == [["east", "digits"], ["north", "digits"]]
    assert main(["silo", "budget", str(tmp_path), "--json"]) == 0
    datasets = json.loads(capsys.readouterr().out)["datasets"]
    assert [found["silo"] for found in datasets] == ["east", "north"]
