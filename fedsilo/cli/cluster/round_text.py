"""The open round of a running job as text: who is awaited, and what happens at the deadline."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from fedsilo.api.text import join_names
from fedsilo.cli.cluster.silos import MAX_NAMES, SiloView
from fedsilo.cli.cluster.time_format import age, since_text, until_text
from fedsilo.explanation.explain import RoundStatus


def in_round(round: RoundStatus, arguments: str, silos: Sequence[SiloView], now: datetime) -> str:
    """What the job waits for in its open round, to continue a sentence that begins with the job.

    :param arguments: the job as the arguments of a command.
    """
    by_name = {silo.name: silo for silo in silos}
    awaited = [by_name[name] for name in round.awaited]
    failures = [_failure(arguments, by_name[name]) for name in round.failed]
    place = f"is in {round_name(round)} {since_text(round.since, now)}"
    if not awaited:
        folding = "No silo is awaited: the aggregator folds what the silos sent, or scores the model."
        return " ".join([f"{place}. {folding}", *failures])
    limit = f" {until_text(round.until, now)}" if round.until and age(round.until, now) <= 0 else ""
    names = join_names([silo.reference for silo in awaited], MAX_NAMES, "others")
    sentences = [f"{place} and waits for {names}{limit}.", _at_the_deadline(round)]
    if round.until and not limit:
        sentences.append(
            f"The deadline was {until_text(round.until, now).removeprefix('until ')}: it counts only the time in which "
            "the aggregator serves, so the aggregator was down or folds the round now."
        )
    problems = [
        silo.problem(now) for silo in awaited if silo.ready["status"] != "True" and silo.ready["message"]
    ]
    hindrances = [silo.hindrance_text for silo in awaited if silo.hindrance]
    return " ".join([*sentences, *failures, *problems, *hindrances])


def round_name(round: RoundStatus) -> str:
    """The round, such as `round 8 of 50 (train)`."""
    all_ = f" of {round.rounds}" if round.rounds else ""
    return f"round {round.number}{all_}{f' ({round.step})' if round.step else ''}"


def _at_the_deadline(round: RoundStatus) -> str:
    have = f"{round.answered} of {round.asked} have answered"
    if round.has_quorum:
        return f"{have}, which is enough: at the deadline the round closes without the others."
    if round.needs_all:
        return f"{have} and all are needed: at the deadline the job fails unless they have."
    return (
        f"{have} and {round.needed} are needed: at the deadline the round closes with those, or the job fails with "
        "fewer."
    )


def _failure(arguments: str, silo: SiloView) -> str:
    logs = f"`kubectl fedsilo logs {arguments} --silo {silo.name}`"
    return f"{silo.reference} failed in this round: read {logs}."
