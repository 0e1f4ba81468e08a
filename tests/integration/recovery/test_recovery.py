"""What stands between hub and institution is killed again and again: the same bytes at the end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.faults.outcome import Violation
from tests.recovery.laboratory import VICTIMS, Laboratory, require_same
from tests.recovery.moment import KILLS

SEED = 1
"""Of the sample, which is the same each time."""

OUTAGE_SECONDS = 5.0
"""Some tries of everybody."""


@pytest.fixture(scope="module")
def laboratory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Laboratory]:
    with Laboratory(tmp_path_factory.mktemp("recovery")) as opened:
        yield opened


@pytest.mark.parametrize("victim", VICTIMS)
def test_kills_change_no_byte(victim: str, laboratory: Laboratory) -> None:
    ended = laboratory.attempt(victim, SEED)
    assert ended.killed == KILLS * len(VICTIMS[victim])


def test_while_the_hub_is_gone_the_institution_says_so_and_keeps_what_it_signed(
    laboratory: Laboratory,
) -> None:
    """Gateway, aggregator and API server are away in the middle of a round; everything goes on by itself."""
    ended = laboratory.outage(OUTAGE_SECONDS)
    assert ended.killed == 2
    assert ended.seconds > OUTAGE_SECONDS


def test_what_is_not_the_same_is_found_and_named(laboratory: Laboratory) -> None:
    expected = laboratory.undisturbed
    assert expected.left is not None
    for name in expected.left:
        changed = replace(expected, left={**expected.left, name: "something else"})
        with pytest.raises(Violation, match=name):
            require_same(changed, expected)
    with pytest.raises(Violation, match="did not end"):
        require_same(replace(expected, left=None, trouble="did not end"), expected)
