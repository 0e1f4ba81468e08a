"""The page of methods says what the declarations say."""

from __future__ import annotations

from pathlib import Path

from fedsilo.methods import registry
from hack.method_pages import MARKER, main, sections
from tests.paths import ROOT

PAGE = ROOT / "docs" / "methods.md"


def test_page_is_not_stale() -> None:
    assert PAGE.read_text().partition(MARKER)[2] == "\n" + sections(), (
        "docs/methods.md is stale: run make reference"
    )


def test_rewriting_keeps_what_people_wrote(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"# By hand\n\n{MARKER}\nold sections\n")
    assert main([str(page)]) == 0
    assert page.read_text() == f"# By hand\n\n{MARKER}\n{sections()}"


def test_every_built_in_method_has_a_row_by_hand_and_a_section() -> None:
    by_hand, _, generated = PAGE.read_text().partition(MARKER)
    for name in registry.names():
        place = f"../fedsilo/methods/{name.replace('-', '_')}"
        linked = place if (PAGE.parent / place).is_dir() else f"{place}.py"
        assert f"]({linked})" in by_hand, name
        assert f"\n### {name}\n" in generated
