"""The pages of methods say what the declarations say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fedsilo.methods import registry
from hack.combinations import FEATURES, refusals
from hack.method_pages import INDEX, MARKER, main, pages
from tests.paths import ROOT

FOLDER = ROOT / "docs" / "methods"
BY_HAND = (ROOT / "docs" / "methods.md").read_text()

FEATURE_OF = {
    "secure sums": "aggregation.secure",
    "noise for an example or a person": "privacy.differentialPrivacy.unit: example",
    "noise for a silo": "privacy.differentialPrivacy.unit: silo",
    "robust rule": "aggregation.rule: median",
    "test set": "evaluation.testDataset",
}
"""Column of the table by hand -> the feature that it is about, as a job writes it."""


def supported_names() -> set[str]:
    return {name for name in registry.names() if registry.get(name).use_when is not None}


def test_pages_are_not_stale() -> None:
    found = {path.name: path.read_text() for path in FOLDER.iterdir()}
    assert found == pages(), "docs/methods is stale: run make reference"


def test_every_built_in_method_has_a_page_to_which_the_index_leads() -> None:
    written = pages()
    assert set(written) == {INDEX, *(f"{name}.md" for name in registry.names())}
    for name in registry.names():
        assert f"| [{name}]({name}.md) | " in written[INDEX]
        assert written[f"{name}.md"].startswith(f"# {name}\n\n{MARKER}\n\n")


def test_writing_removes_the_page_of_a_method_that_is_gone(tmp_path: Path) -> None:
    (tmp_path / "gone.md").write_text("# gone\n")
    (tmp_path / "fedavg.md").write_text("# old\n")
    assert main([str(tmp_path)]) == 0
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == pages()


def rows_of(heading: str) -> list[list[str]]:
    """Cells of the table that follows a heading of the page by hand."""
    section = BY_HAND.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in (lines[0], *lines[2:])]


def test_the_page_by_hand_has_a_row_for_each_supported_method_and_no_other() -> None:
    _, *rows = rows_of("What goes with what")
    assert {row[0] for row in rows} == {f"[{name}](methods/{name}.md)" for name in supported_names()}
    assert len(rows) == len(supported_names())


@pytest.mark.parametrize("column", FEATURE_OF)
def test_the_page_by_hand_says_what_each_supported_method_goes_with(column: str) -> None:
    (feature,) = [feature for feature in FEATURES if feature.place == FEATURE_OF[column]]
    head, *rows = rows_of("What goes with what")
    said = {re.findall(r"\[(.+?)\]", row[0])[0]: row[head.index(column)] for row in rows}
    goes = {name: "no" if refusals(feature, method=name) else "yes" for name in said}
    assert said == goes
