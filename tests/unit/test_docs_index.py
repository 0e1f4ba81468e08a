"""The index of the documentation leads to every page, and from the README one comes to it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.paths import ROOT

INDEX = ROOT / "docs" / "README.md"
LINK = re.compile(r"\]\(([^)#]+)[^)]*\)")
DOORS = 5
PAGES_OF_A_DOOR = 6


def linked_pages() -> set[str]:
    """Pages that the index leads to, by their paths from the root."""
    paths = (INDEX.parent / target for target in LINK.findall(INDEX.read_text()))
    return {str(path.resolve().relative_to(ROOT)) for path in paths}


def is_listed_elsewhere(path: Path) -> bool:
    """Whether a page is a paper's table, or a method's, which docs/methods/README.md lists."""
    return "tables" in path.parts or (path.parent == INDEX.parent / "methods" and path.name != "README.md")


@pytest.mark.parametrize(
    "page",
    sorted(
        str(path.relative_to(ROOT))
        for path in (ROOT / "docs").rglob("*")
        if path.suffix in (".md", ".ipynb") and path != INDEX and not is_listed_elsewhere(path)
    ),
)
def test_the_index_leads_to_every_page(page: str) -> None:
    assert page in linked_pages(), f"name {page} in docs/README.md, at the door of who needs it"


def test_each_door_has_its_pages_in_order() -> None:
    sections = re.split(r"^## ", INDEX.read_text(), flags=re.MULTILINE)[1 : DOORS + 1]
    for section in sections:
        numbers = re.findall(r"^(\d)\. ", section, flags=re.MULTILINE)
        assert numbers == [str(number + 1) for number in range(PAGES_OF_A_DOOR)], section.splitlines()[0]


def test_the_readme_names_every_door() -> None:
    doors = re.findall(r"^## (.+)$", INDEX.read_text(), flags=re.MULTILINE)[:DOORS]
    readme = (ROOT / "README.md").read_text()
    assert [door for door in doors if f"[{door}](docs/README.md#" not in readme] == []
