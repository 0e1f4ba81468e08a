"""The site's navigation, its links to files that are no pages, and the notebook as a page."""

from __future__ import annotations

import json

import pytest

from hack.site import navigation
from tests.pages import name_of, pages
from tests.paths import ROOT

NOTEBOOK = "docs/guides/from-a-notebook.ipynb"
GOLDEN = "golden"
"""Folders of files that tests compare with; some of these end in .md."""


def all_pages() -> set[str]:
    """Every page of the project, by its path."""
    notebooks = (ROOT / "docs").rglob("*.ipynb")
    return {name_of(page) for page in [*pages(), *notebooks] if GOLDEN not in page.parts}


@pytest.mark.parametrize("page", sorted(all_pages()))
def test_every_page_is_in_the_navigation(page: str) -> None:
    assert page in navigation.pages(), f"no page links to {page}"


def test_the_navigation_has_the_sections_of_the_index_in_their_order() -> None:
    headings = [
        line.removeprefix("## ")
        for line in (ROOT / navigation.INDEX).read_text().splitlines()
        if line.startswith("## ")
    ]
    assert list(navigation.sections()) == headings
    assert all(navigation.sections().values())


def test_a_page_stands_in_one_place_of_the_navigation_or_in_several_sections() -> None:
    named = {page for entries in navigation.sections().values() for _, page in entries}
    below = [page for entries in navigation.children().values() for page in entries]
    assert len(below) == len(set(below))
    assert not named & set(below)


def test_a_link_text_in_a_sentence_is_no_title() -> None:
    titles = {page: title for entries in navigation.sections().values() for title, page in entries}
    assert titles["docs/running-locally.md"] == "Running locally"
    assert titles["docs/silo-privacy.md"] is None


@pytest.mark.parametrize("page", navigation.pages())
def test_every_relative_link_leads_to_a_page_or_to_a_file(page: str) -> None:
    nowhere = [target for _, target in navigation.links(page) if not (ROOT / target).exists()]
    assert nowhere == []


def test_a_notebooks_code_becomes_blocks() -> None:
    cells = [
        {"cell_type": "markdown", "source": ["# Title\n", "[a](b.md)"]},
        {"cell_type": "code", "source": ["1 + 1"]},
        {"cell_type": "code", "source": []},
    ]
    text = navigation.notebook_as_markdown(json.dumps({"cells": cells}))
    assert text == "# Title\n[a](b.md)\n\n```python\n1 + 1\n```"


def test_a_notebooks_links_are_found() -> None:
    assert ("docs/python.md", "docs/python.md") in navigation.links(NOTEBOOK)


def test_what_looks_like_a_page_and_is_none_stays_outside() -> None:
    assert "tests/unit/engine/golden/model_card.md" in navigation.no_pages()
    assert not set(navigation.no_pages()) & set(navigation.pages())
