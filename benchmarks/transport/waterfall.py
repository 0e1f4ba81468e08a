"""The steps of one round: which took how long, in which role."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from benchmarks.transport.federation import RunMeasurement
from benchmarks.transport.steps import STEPS, RecordedCall, Step
from benchmarks.transport.tables import table


@dataclass(frozen=True)
class RoundSteps:
    """The steps that ended in a round.

    :param number: of the round, among those that count.
    :param began: `time.monotonic()`.
    """

    number: int
    began: float
    seconds: float
    found: list[RecordedCall]


def steps_of_round(records: Sequence[RecordedCall], run: RunMeasurement) -> RoundSteps:
    """The steps of the round whose length is the median of the run, cut at its beginning."""
    number = run.seconds.index(sorted(run.seconds)[(len(run.seconds) - 1) // 2])
    began = run.began + sum(run.seconds[:number])
    ended = began + run.seconds[number]
    found = [replace(one, began=max(one.began, began)) for one in records if began < one.ended <= ended]
    return RoundSteps(number, began, ended - began, found)


def steps_table(steps: RoundSteps, run: RunMeasurement) -> str:
    """Calls, wall and CPU seconds of each step, and of each role what no step has."""
    rows = []
    for role, use in run.roles.items():
        own = [one for one in steps.found if one.role == role]
        cpu = use.cpu[steps.number]
        known = 0.0
        for step in (step for step in STEPS if step.role == role):
            calls = [one for one in own if one.label == step.label]
            if not calls:
                continue
            known += sum(one.cpu for one in calls if not one.nested)
            rows.append(_row(role, step.label, calls, steps.began))
        rows.append([role, "everything else", "", "", "", "", f"{cpu - known:.2f}"])
    head = ["role", "step", "calls", "begins at, s", "longest, s", "all, s", "CPU, s"]
    title = f"round {steps.number + 1}: {steps.seconds:.2f} s; a step's CPU seconds are also those of the one around it"
    return f"{title}\n\n{table(head, rows)}"


def is_outer(step: Step) -> bool:
    """Whether it is not part of the step above it."""
    return not step.label.startswith(" ")


def _row(role: str, label: str, calls: Sequence[RecordedCall], began: float) -> list[str]:
    lengths = [one.ended - one.began for one in calls]
    shown = label.replace("  ", "&nbsp;&nbsp;", 1)
    first = min(one.began for one in calls) - began
    cpu = sum(one.cpu for one in calls)
    return [
        role,
        shown,
        str(len(calls)),
        f"{first:.2f}",
        f"{max(lengths):.2f}",
        f"{sum(lengths):.2f}",
        f"{cpu:.2f}",
    ]
