"""Guard and trainer as the place in which they run observes them, and how a silo's part ends with them."""

from __future__ import annotations

from dataclasses import dataclass, field

from fedsilo.api.conditions import AgentReason
from fedsilo.api.diagnosis import Diagnosis, Outcome

GUARD, TRAINER = "guard", "trainer"

TRAINER_EXIT_SECONDS = 30.0
"""Time in which a trainer whose guard is done may end by itself: it may have the silo's own model to write."""

TRAINER_LOST = Outcome(
    False,
    Diagnosis(
        AgentReason.TRAINER_LOST,
        "The trainer ended with exit code 0 before the job was over; its loader, model or method must not end the "
        "process, see its log.",
    ),
)


@dataclass(frozen=True)
class ComponentState:
    """State of one component of a silo's agent, its guard or its trainer.

    :param running: whether it runs or is done.
    :param alive: whether anything of it may still write to the volume.
    :param stopped: whether nothing of it is alive, and nothing begins unless it is to run.
    :param outcome: how it ended; None until it has for good.
    :param done_seconds: time since it ended with success; None before that. That it passes makes no other state.
    :param diagnosis: what keeps it from running, where that is known.
    """

    name: str
    running: bool = False
    alive: bool = False
    stopped: bool = False
    outcome: Outcome | None = None
    done_seconds: float | None = field(default=None, compare=False)
    diagnosis: Diagnosis | None = None


def outcome_of(trainer: ComponentState, guard: ComponentState) -> Outcome | None:
    """How the silo's part ended: it fails with either component, and is finished when its guard is."""
    ends = (trainer.outcome, guard.outcome)
    failed = [end.diagnosis for end in ends if end is not None and not end.succeeded]
    if failed:
        return Outcome(False, Diagnosis(failed[0].reason, " ".join(found.message for found in failed)))
    if guard.outcome is not None and (trainer.outcome is not None or trainer.stopped):
        text = "The job is over for this silo: guard and trainer are done."
        return Outcome(True, Diagnosis(AgentReason.FINISHED, text))
    return None


def exit_seconds(trainer: ComponentState, guard: ComponentState) -> float | None:
    """Seconds that a trainer whose guard is done has left to end by itself; None where it has no such guard."""
    if guard.done_seconds is None or trainer.outcome is not None:
        return None
    return max(0.0, TRAINER_EXIT_SECONDS - guard.done_seconds)


def waiting_diagnosis(trainer: ComponentState, guard: ComponentState) -> Diagnosis | None:
    """What guard and trainer wait for; None when they run."""
    waiting = [one for one in (trainer, guard) if one.outcome is None and not one.running]
    if not waiting:
        return None
    text = f"Waiting for {' and '.join(f'the {one.name}' for one in waiting)} to run."
    known = (one.diagnosis for one in waiting if one.diagnosis)
    return next(known, Diagnosis(AgentReason.STARTING, text))
