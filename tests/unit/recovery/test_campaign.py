"""A campaign of kills repeats itself, goes on where it was interrupted, and says what came of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from typing_extensions import override

from tests.faults.outcome import Violation
from tests.recovery.campaign import Attempt, campaign, read_log, table, write_log
from tests.recovery.moment import KILLS, drawn_kills
from tests.recovery.trial import EndedRun


class RehearsedLaboratory:
    """A laboratory without processes, in which one seed leads to a violation."""

    def __init__(self, bad: int | None = None) -> None:
        self.bad = bad
        self.tried: list[tuple[str, int]] = []

    def attempt(self, victim: str, seed: int) -> EndedRun:
        self.tried.append((victim, seed))
        if seed == self.bad:
            raise Violation("model.safetensors: another")
        return EndedRun({}, "", 1000, KILLS, 1.0)


def play(laboratory: Any, kills: int, done: list[Attempt], log: Path) -> list[Attempt]:
    return campaign(laboratory, ["gateway", "serve"], kills, 7, done, lambda made: write_log(log, made))


def test_moments_follow_from_the_seed_and_lie_within_the_run() -> None:
    assert drawn_kills(5, 1000) == drawn_kills(5, 1000) != drawn_kills(6, 1000)
    moments = [kill.passed for kill in drawn_kills(5, 1000)]
    assert moments == sorted(moments) and moments[0] >= 0 and moments[-1] < 1000


def test_an_interrupted_campaign_goes_on_with_what_is_left(tmp_path: Path) -> None:
    whole = play(RehearsedLaboratory(), 4 * KILLS, [], tmp_path / "whole")
    play(RehearsedLaboratory(), 2 * KILLS, [], tmp_path / "log")
    with (tmp_path / "log").open("a") as log:
        log.write('{"victim": "gate')
    again = RehearsedLaboratory()
    assert play(again, 4 * KILLS, read_log(tmp_path / "log"), tmp_path / "rest") == whole
    assert again.tried == [("gateway", 9), ("serve", 10)]


def test_a_violation_is_in_the_table_with_the_command_that_repeats_it(tmp_path: Path) -> None:
    attempts = play(RehearsedLaboratory(bad=8), 3 * KILLS, [], tmp_path / "log")
    (bad,) = (made for made in attempts if made.violation)
    assert bad.command == "python -m tests.recovery --victim serve --seed 8"
    assert f"| `fedsilo silo serve` | 2 | {KILLS} | 1 | 1 |" in table(attempts)


def test_a_campaign_in_which_everything_is_violated_ends(tmp_path: Path) -> None:
    class BrokenLaboratory(RehearsedLaboratory):
        @override
        def attempt(self, victim: str, seed: int) -> EndedRun:
            raise Violation("nothing works")

    assert len(play(BrokenLaboratory(), 5, [], tmp_path / "log")) == 5
