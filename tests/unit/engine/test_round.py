"""A round as the engine drives it: any order of answers, failures and serving time."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from fedsilo.engine.round import OpenRound, RoundOutcome
from fedsilo.errors import DeadlineExceeded, QuorumLost

DEADLINE_SECONDS = 60.0
SILOS = tuple(f"silos/{letter}" for letter in "abcde")
silos = st.sampled_from(SILOS)


class RoundMachine(RuleBasedStateMachine):
    """Late events are refused by `OpenExchange.expected`, so that only time goes on once it has an outcome."""

    @initialize(asked=st.integers(1, len(SILOS)), data=st.data())
    def begin(self, asked: int, data: st.DataObject) -> None:
        self.round = OpenRound(SILOS[:asked], data.draw(st.integers(1, asked)), DEADLINE_SECONDS)
        self.answered: set[str] = set()
        self.failed: set[str] = set()
        self.elapsed = 0.0
        self.outcome = RoundOutcome.OPEN

    @precondition(lambda self: self.outcome is RoundOutcome.OPEN)
    @rule(silo=silos)
    def answer(self, silo: str) -> None:
        if silo in self.round.silos:
            self.round = self.round.answer(silo)
            self.answered.add(silo)
            self.failed.discard(silo)

    @precondition(lambda self: self.outcome is RoundOutcome.OPEN)
    @rule(silo=silos)
    def fail(self, silo: str) -> None:
        if silo in self.round.silos:
            self.round = self.round.fail(silo, "DataInvalid: no file")
            if silo not in self.answered:
                self.failed.add(silo)

    @rule(seconds=st.floats(0, 2 * DEADLINE_SECONDS))
    def wait(self, seconds: float) -> None:
        self.round = self.round.wait(seconds)
        self.elapsed += seconds

    @invariant()
    def an_outcome_is_final(self) -> None:
        if self.outcome is not RoundOutcome.OPEN:
            assert self.round.outcome is self.outcome
        self.outcome = self.round.outcome

    @invariant()
    def it_never_outlives_its_deadline(self) -> None:
        assert self.elapsed < DEADLINE_SECONDS or self.round.outcome is not RoundOutcome.OPEN

    @invariant()
    def it_counts_as_soon_as_nobody_is_awaited_or_time_is_up_and_only_with_quorum(self) -> None:
        awaited = set(self.round.silos) - self.answered - self.failed
        assert set(self.round.awaited_silos) == awaited
        over = not awaited or self.elapsed >= DEADLINE_SECONDS
        closed = over and len(self.answered) >= self.round.quorum
        assert (self.round.outcome is RoundOutcome.CLOSED) == closed

    @invariant()
    def it_is_lost_as_soon_as_quorum_is_out_of_reach(self) -> None:
        within_reach = len(self.round.silos) - len(self.failed) >= self.round.quorum
        assert (self.round.outcome is RoundOutcome.QUORUM_LOST) == (not within_reach)

    @invariant()
    def a_lost_round_names_the_silos_that_are_missing(self) -> None:
        if self.round.outcome in (RoundOutcome.OPEN, RoundOutcome.CLOSED):
            return
        expired = self.round.outcome is RoundOutcome.EXPIRED
        loss = self.round.loss()
        assert isinstance(loss, DeadlineExceeded if expired else QuorumLost)
        named = {silo for silo in SILOS if silo in str(loss)}
        assert named == self.failed | (set(self.round.awaited_silos) if expired else set())


RoundMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=12)
TestRound = RoundMachine.TestCase


def test_an_answer_outlives_the_failure_that_the_silo_reported_before() -> None:
    round = OpenRound(("a", "b"), 2, DEADLINE_SECONDS).fail("a", "TrainerError: out of memory").wait(1)
    assert round.outcome is RoundOutcome.QUORUM_LOST
    assert round.answer("a").outcome is RoundOutcome.OPEN


def test_the_message_of_a_lost_round_says_what_each_silo_said() -> None:
    round = (
        OpenRound(("a", "b", "c"), 3, 90.0).answer("a").fail("b", "DataInvalid: item 3 holds NaN").wait(90)
    )
    assert str(round.loss()) == (
        "1 of 3 silos answered, quorum is 3; b failed: DataInvalid: item 3 holds NaN"
    )
    waiting = OpenRound(("a", "b"), 2, 90.0).answer("a").wait(90)
    assert str(waiting.loss()) == "1 of 2 silos answered, quorum is 2; still awaited after 90 s: b"
