"""The open round of a running job: who is awaited, and what happens at the deadline."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from fedsilo.api.job import quorum
from fedsilo.api.observed import status_of
from fedsilo.cli.cluster.facts import Object, listed
from fedsilo.cli.cluster.moments import age, since, until
from fedsilo.cli.cluster.silos import SiloView


def in_round(job: Object, silos: Sequence[SiloView], now: datetime) -> str | None:
    """What the job waits for in its open round, to go on a sentence that begins with the job; None without one."""
    status = status_of(job)
    begin, deadline = status.get("roundStartTime"), status.get("roundDeadline")
    if begin is None:
        return None
    place = f"is in {round_of(job)} {since(begin, now)}"
    asked = [silo for silo in silos if silo.entry.get("state") in ("Awaited", "Reported", "Failed")]
    awaited = [silo for silo in asked if silo.entry["state"] == "Awaited"]
    failed = [silo for silo in asked if silo.entry["state"] == "Failed"]
    if not awaited:
        told = f"{place}. No silo is awaited: the aggregator folds what the silos sent, or scores the model."
        return " ".join([told, *(_failure(job, silo) for silo in failed)])
    limit = f" {until(deadline, now)}" if deadline and age(deadline, now) <= 0 else ""
    sentences = [
        f"{place} and waits for {listed(silo.reference for silo in awaited)}{limit}.",
        _at_the_deadline(job, len(asked), len(asked) - len(awaited) - len(failed)),
    ]
    if deadline and not limit:
        sentences.append(
            f"The deadline was {until(deadline, now).removeprefix('until ')}: it counts only the time in which the "
            "aggregator serves, so the aggregator was down or folds the round now."
        )
    sentences += (_failure(job, silo) for silo in failed)
    sentences += (
        silo.trouble(now) for silo in awaited if silo.ready["status"] != "True" and silo.ready["message"]
    )
    return " ".join(sentences)


def round_of(job: Object) -> str:
    """The open round, such as `round 8 of 50 (train)`."""
    status = status_of(job)
    number, step = (status.get("round") or 0) + 1, status.get("step")
    all_ = f" of {status['rounds']}" if status.get("rounds") else ""
    return f"round {number}{all_}{f' ({step})' if step else ''}"


def _at_the_deadline(job: Object, asked: int, answered: int) -> str:
    needed = quorum((job["spec"].get("participation") or {}).get("minSilos"), asked)
    have = f"{answered} of {asked} have answered"
    if answered >= needed:
        return f"{have}, which is enough: at the deadline the round closes without the others."
    if needed == asked:
        return f"{have} and all are needed: at the deadline the job fails unless they have."
    return f"{have} and {needed} are needed: at the deadline the round closes with those, or the job fails with fewer."


def _failure(job: Object, silo: SiloView) -> str:
    place = f"{job['metadata']['name']} -n {job['metadata']['namespace']}"
    return f"{silo.reference} failed in this round: read `kubectl fedsilo logs {place} --silo {silo.name}`."
