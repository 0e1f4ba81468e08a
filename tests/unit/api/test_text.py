"""How messages name many things."""

from __future__ import annotations

import pytest

from fedsilo.api.text import comma_separated, count_text, first_items, join_names, shortened_list, size

NAMES = ["a", "b", "c", "d"]


def test_of_many_items_the_first_are_shown_and_the_rest_is_counted() -> None:
    assert first_items(NAMES, 4) == NAMES
    assert first_items(NAMES, 3) == ["a", "b", "c", "1 more"]
    assert shortened_list(NAMES, 4) == NAMES
    assert shortened_list(NAMES, 3, "others") == ["a", "b", "2 others"]


def test_names_within_a_sentence() -> None:
    assert join_names(["a"], 3) == "a"
    assert join_names(["a", "b"], 3) == "a and b"
    assert join_names(NAMES, 3) == "a, b and 2 more"
    assert comma_separated(NAMES, 3) == "a, b, c, 1 more"
    assert comma_separated([], 3) == "none"


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (1_234_567, "1.2 MB"), (2e15, "2000.0 TB")],
)
def test_sizes_have_decimal_units(count: float, text: str) -> None:
    assert size(count) == text


def test_a_count_has_its_noun_in_the_right_number() -> None:
    assert [count_text(count, "silo") for count in (0, 1, 2)] == ["0 silos", "1 silo", "2 silos"]
