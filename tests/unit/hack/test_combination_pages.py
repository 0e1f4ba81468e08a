"""The page of what goes with what says what is said of jobs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fedsilo.methods import registry
from fedsilo.transforms.order import ORDER
from fedsilo.transforms.third_party.declaration import ThirdPartyTransform
from hack import privacy_page
from hack.combination_pages import MARKER, main, tables
from hack.combinations import FEATURES, Feature, are_one_field, method_of, refusals
from hack.crd_pairs import of_both, refused_pairs, why_none
from tests.paths import ROOT

PAGE = ROOT / "docs" / "combinations.md"
PRIVACY = ROOT / "docs" / "privacy.md"
FEATURES_BY_NAME = {feature.name: feature for feature in FEATURES}


def test_page_is_not_stale() -> None:
    assert PAGE.read_text().partition(MARKER)[2] == "\n" + tables(), (
        "docs/combinations.md is stale: run make reference"
    )


def test_rewriting_keeps_what_people_wrote(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"# By hand\n\n{MARKER}\nold tables\n")
    assert main([str(page)]) == 0
    assert page.read_text() == f"# By hand\n\n{MARKER}\n{tables()}"


def test_page_of_promises_is_not_stale() -> None:
    generated = PRIVACY.read_text().partition(privacy_page.BEGIN)[2].partition(privacy_page.END)[0]
    assert generated == f"\n{privacy_page.tables()}\n", "docs/privacy.md is stale: run make reference"


def test_rewriting_the_page_of_promises_keeps_what_people_wrote(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"# By hand\n\n{privacy_page.BEGIN}\nold\n{privacy_page.END}\n\n## By hand too\n")
    assert privacy_page.main([str(page)]) == 0
    before, _, rest = page.read_text().partition(privacy_page.BEGIN)
    assert (before, rest.partition(privacy_page.END)[2]) == ("# By hand\n\n", "\n\n## By hand too\n")


def test_a_promise_has_the_numbers_of_reasons_of_the_other_page() -> None:
    (row,) = re.findall(r"^\| \*\*L\*\* BatchNorm \|(.*)", tables(), re.MULTILINE)
    (promised,) = re.findall(r"^\| BatchNorm \(.*?\) \|(.*)", privacy_page.tables(), re.MULTILINE)
    assert re.findall(r"\d+", row) == re.findall(r"no: (\d+)", promised)


def test_reasons_say_which_an_api_server_knows() -> None:
    rows = [row.split(" | ") for row in tables().partition("## Reasons")[2].splitlines()]
    known = {row[2] for row in rows if row[-1] == "yes |"}
    assert known == {
        problem for pair in refused_pairs() if not why_none(*pair) for _, _, problem, _ in of_both(*pair)
    }


@pytest.mark.parametrize("feature", FEATURES, ids=FEATURES_BY_NAME)
def test_a_feature_goes_by_itself(feature: Feature) -> None:
    assert refusals(feature) == ()


def test_a_method_goes_by_itself() -> None:
    for name in registry.names():
        assert refusals(method=name) == (), name


def test_every_transform_is_among_the_features() -> None:
    found = {type(each) for feature in FEATURES for kind in ORDER if (each := kind.of(method_of(feature)))}
    assert found | {ThirdPartyTransform} == set(ORDER)  # whose classes say themselves what they go with


def test_values_of_one_field_are_no_pair() -> None:
    assert are_one_field(FEATURES_BY_NAME["noise for each example"], FEATURES_BY_NAME["noise for each silo"])
    assert are_one_field(FEATURES_BY_NAME["clipped changes"], FEATURES_BY_NAME["another robust rule"])
    assert not are_one_field(FEATURES_BY_NAME["sums only"], FEATURES_BY_NAME["weights by samples"])
