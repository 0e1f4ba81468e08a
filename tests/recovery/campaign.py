"""Many runs with kills, and what came of them as a table."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.faults.outcome import Violation
from tests.recovery.laboratory import Laboratory

WORDS = {
    "gateway": "the gateway",
    "hub": "gateway and aggregator at once",
    "serve": "`fedsilo silo serve`",
    "connector": "connector and silo controller of an institution's own cluster",
}
"""What is killed, in words."""


@dataclass(frozen=True)
class Attempt:
    """A run and what came of it.

    :param killed: how often its victim was killed.
    :param violation: what it has left that the undisturbed run has not; "" where it is the same.
    """

    victim: str
    seed: int
    killed: int
    seconds: float
    violation: str = ""

    @property
    def command(self) -> str:
        """The command that does it again."""
        return f"python -m tests.recovery --victim {self.victim} --seed {self.seed}"


def attempt(laboratory: Laboratory, victim: str, seed: int) -> Attempt:
    """Try one run whose victim is killed."""
    try:
        ended = laboratory.attempt(victim, seed)
    except Violation as violation:
        return Attempt(victim, seed, 0, 0.0, str(violation))
    return Attempt(victim, seed, ended.killed, round(ended.seconds, 2))


def campaign(
    laboratory: Laboratory,
    victims: Sequence[str],
    kills: int,
    seed: int,
    done: Sequence[Attempt],
    note: Callable[[Attempt], None],
) -> list[Attempt]:
    """Runs with victims in turn, until so many processes were killed.

    :param done: of an earlier, interrupted campaign with this seed, which are not tried again.
    :param note: called with each attempt.
    """
    attempts = list(done)
    while sum(made.killed for made in attempts) < kills and len(attempts) < kills:
        number = len(attempts)
        attempts.append(attempt(laboratory, victims[number % len(victims)], seed + number))
        note(attempts[-1])
    return attempts


def read_log(path: Path) -> list[Attempt]:
    """Attempts of an interrupted campaign; a line that the interruption cut off is left out."""
    if not path.exists():
        return []
    whole = path.read_text().rpartition("\n")[0]
    return [Attempt(**json.loads(line)) for line in whole.splitlines()]


def write_log(path: Path, made: Attempt) -> None:
    """Add one line to the log of a campaign."""
    with path.open("a") as log:
        log.write(json.dumps(asdict(made)) + "\n")


def table(attempts: Sequence[Attempt]) -> str:
    """What came of the kills of each process, in Markdown."""
    rows = ["| killed | runs | kills | same bytes | violated |", "|---|---:|---:|---:|---:|"]
    for victim, what in WORDS.items():
        ours = [made for made in attempts if made.victim == victim]
        violated = sum(bool(made.violation) for made in ours)
        counts = [len(ours), sum(made.killed for made in ours), len(ours) - violated, violated]
        rows.append(f"| {what} | {' | '.join(map(str, counts))} |")
    return "\n".join(rows)
