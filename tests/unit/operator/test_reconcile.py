"""The whole operator over a cluster in memory: from apply to model, whatever goes wrong on the way."""

from __future__ import annotations

import os
from typing import Any

import pytest

from tests.conftest import OPERATOR_SEED, OPERATOR_SEEDS
from tests.operator_fakes.virtual import run
from tests.unit.operator.trial import Trial, failure, main, undisturbed_outcome

BLOCK = 20
BLOCKS = [
    pytest.param(block, marks=[pytest.mark.thorough] if block else [])
    for block in range(OPERATOR_SEEDS // BLOCK)
]


@pytest.fixture(scope="module")
def expected_outcome() -> dict[str, Any]:
    return undisturbed_outcome()


def test_apply_to_model(expected_outcome: dict[str, Any]) -> None:
    status = expected_outcome["FederatedJob federation/digits"]["status"]
    assert status["progress"] == "3/3"
    assert [entry["phase"] for entry in status["silos"]] == ["Finished", "Finished"]


def test_no_condition_goes_back_when_nothing_goes_wrong() -> None:
    trial = Trial(0)
    run(trial.complete())
    # The job is looked at every 2 s, in which its silos may admit it.
    assert trial.transitions.pop("Admitted") in (["True"], ["False", "True"])
    assert trial.transitions == {
        "Accepted": ["True"],
        "SilosReady": ["False", "True", "False"],
        "Running": ["False", "True", "False"],
        "Complete": ["True"],
        "Ready": ["False", "True"],
    }


@pytest.mark.parametrize("block", BLOCKS)
def test_whatever_goes_wrong_the_end_is_the_same(expected_outcome: dict[str, Any], block: int) -> None:
    """Fresh seeds in every run, which its header names."""
    first = int(os.environ[OPERATOR_SEED]) + BLOCK * block
    assert [found for seed in range(first, first + BLOCK) if (found := failure(seed, expected_outcome))] == []


def test_a_campaign_prints_the_seeds_that_fail(
    expected_outcome: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The wanted end is another one, as after a change of the operator that ends otherwise than before."""
    assert main(["--first", "7", "--seeds", "2"]) == 0
    assert capsys.readouterr().out == "seeds 7 to 8\n2 of 2 seeds end as they should\n"
    job = expected_outcome["FederatedJob federation/digits"]
    other = {
        **expected_outcome,
        "FederatedJob federation/digits": {**job, "status": {**job["status"], "round": 9}},
    }
    monkeypatch.setattr("tests.unit.operator.trial.undisturbed_outcome", lambda: other)
    assert main(["--first", "7", "--seeds", "1"]) == 1
    told = capsys.readouterr().out
    assert "seed 7: .FederatedJob federation/digits.status.round: 3 instead of 9; " in told
    assert "again: python -m tests.unit.operator.trial --first 7 --seeds 1" in told
