"""An institution is told of two names of the same data where a budget would not count what is learned of both."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from fedsilo.api.silo import Silo
from fedsilo.institution.silo_file import WatchedSilo
from fedsilo.silo.shared_data import shared_data
from tests.unit.institution import parts


def silo(*budgets: str, other: str = "./digits.npz") -> Silo:
    datasets = [
        {"name": "digits", "loader": "npz", "config": {"path": "digits.npz"}},
        {"name": "again", "loader": "npz", "config": {"path": other}},
    ]
    stated = [{"dataset": name, "epsilon": 1.0, "delta": 1e-3} for name in budgets]
    spec: dict[str, Any] = {"datasets": datasets, "policy": {"privacyBudget": stated} if stated else {}}
    return Silo.model_validate({"metadata": {"name": "north", "namespace": "silo-north"}, "spec": spec})


@pytest.mark.parametrize(
    ("budgets", "words"),
    [
        (("digits", "again"), "each name has a budget and a ledger of its own"),
        (("digits",), "again has no budget"),
        (("again",), "digits has no budget"),
    ],
)
def test_two_names_of_data_with_a_budget_are_both_named(budgets: tuple[str, ...], words: str) -> None:
    (text,) = shared_data(silo(*budgets), Path("/data"))
    assert text.startswith("policy.privacyBudget: datasets digits and again are of the same data")
    assert words in text


def test_without_a_budget_or_of_other_data_nothing_is_said() -> None:
    assert list(shared_data(silo(), Path("/data"))) == []
    assert list(shared_data(silo("digits", "again", other="others.npz"), Path("/data"))) == []


def test_whoever_serves_a_silo_is_told_once_for_each_reading(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place = parts.directory(tmp_path)
    (tmp_path / "digits.npz").touch()
    (tmp_path / "link.npz").symlink_to("digits.npz")
    offered = silo("digits", "again", other="link.npz")
    place.silo_file.write_text(offered.model_dump_json(by_alias=True, exclude={"status"}, exclude_none=True))
    with caplog.at_level(logging.WARNING, "fedsilo.silo"):
        watched = WatchedSilo(place, parts.MEMBER, parts.KEY.verify_key.to_text())
        assert not watched.changed()
    (message,) = caplog.messages
    assert "datasets digits and again are of the same data" in message
