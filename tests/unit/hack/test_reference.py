"""The page of manifests says what the models say."""

from __future__ import annotations

from pathlib import Path

from hack.reference import MARKER, main, tables
from tests.paths import ROOT

PAGE = ROOT / "docs" / "manifests.md"


def test_page_is_not_stale() -> None:
    command = "python -m hack.reference docs/manifests.md"
    assert PAGE.read_text().partition(MARKER)[2] == "\n" + tables(), (
        f"docs/manifests.md is stale: run {command}"
    )


def test_rewriting_keeps_what_people_wrote(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"# By hand\n\n{MARKER}\nold tables\n")
    assert main([str(page)]) == 0
    assert page.read_text() == f"# By hand\n\n{MARKER}\n{tables()}"


def test_tables_have_types_bounds_and_defaults() -> None:
    shown = tables()
    for row in (
        "| `rounds` | integer 0 to 10000 | required | Number of rounds of training;",
        "| `momentum` | number at least 0 below 1 | `0.9` | Heavy-ball momentum. |",
        '| `roundDeadline` | duration such as `1h30m` | `"10m"` |',
        "| `inputShape` | list of 1 to 4: integer 1 to 65536 | required |",
        '| `schedule` | `constant`, `cosine`, `exponential` | `"constant"` |',
        "| `payloadKinds` | list of at most 16: `model`,",
    ):
        assert row in shown
    assert shown.count("### DatasetSpec\n") == 1
