"""What stands between hub and institution is killed again and again: the same bytes at the end."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace

import pytest

from fedsilo.api.observed import reference
from fedsilo.silo.decision import read_decision
from fedsilo.silo.rotation import keys_since
from fedsilo.wire import VerifyKey
from tests.faults.outcome import Violation
from tests.recovery.laboratory import SERVED_SILO, VICTIMS, Laboratory, require_same
from tests.recovery.moment import KILLS
from tests.recovery.rotation import public_key_of

pytestmark = pytest.mark.thorough

SEED = 1
"""Seed of the sample, which is the same each time."""

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


def test_a_job_ends_with_the_key_that_it_began_with_and_the_next_has_the_new_one(
    laboratory: Laboratory,
) -> None:
    """Connector, gateway, aggregators, guards and trainers are processes; the guard starts again after the rotation."""
    ended, trial = laboratory.rotation()
    old, new = (public_key_of(workdir, SERVED_SILO) for workdir in (trial.workdir, trial.next_run))
    announced = trial.hub_silo["status"]["rotations"]
    assert keys_since(reference(trial.hub_silo), old, announced) == (old, new)
    for key, decision in zip((old, new), trial.decisions, strict=True):
        assert read_decision(decision, key).decision == "Admitted"
    log = (trial.workdir.logs / f"{SERVED_SILO}-guard.log").read_text()
    assert f"signs with the key of the job, {VerifyKey.from_text(old).key_id}" in log
    assert log.count("signs with the key of the job") == 1, (
        "the first guard and that of the next job need no other"
    )
    assert ended.left is not None
    model = (trial.next_run.aggregator / "model.safetensors").read_bytes()
    assert hashlib.sha256(model).hexdigest() == ended.left["model.safetensors"], "the same job once more"


def test_what_is_not_the_same_is_found_and_named(laboratory: Laboratory) -> None:
    expected = laboratory.undisturbed_run
    assert expected.left is not None
    for name in expected.left:
        changed = replace(expected, left={**expected.left, name: "something else"})
        with pytest.raises(Violation, match=name):
            require_same(changed, expected)
    with pytest.raises(Violation, match="did not end"):
        require_same(replace(expected, left=None, trouble="did not end"), expected)
