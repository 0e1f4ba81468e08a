"""The records of rounds, one line of the history each, and what people see of them: learning curves and receipts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedsilo.api.figures import finite_figures
from fedsilo.api.status import ClassStatus, CurvePoint
from fedsilo.api.text import count_text
from fedsilo.engine.round import OpenRound
from fedsilo.methods.interface import EVALUATE, PREPROCESSING, Exchange

MAX_POINTS = 100
"""Points of a curve: as many as a screen shows, and few enough for a job's status."""

MAX_CLASSES = 50
"""Classes whose figures are in a job's status: more than a picture can show."""

Record = Mapping[str, Any]
"""A line of the history."""


def curve(history: Sequence[Record]) -> tuple[CurvePoint, ...]:
    """Scores and training figures by round, thinned to at most `MAX_POINTS` points.

    Of a long history every 2nd, 4th, 8th ... round is kept, and always the last, so that a point stays where it is
    while others come. A kept round has the scores of the last evaluation since the one kept before.
    """
    stride = 1
    while len(history) >= MAX_POINTS * stride:
        stride *= 2
    points: list[CurvePoint] = []
    metrics: Mapping[str, float] = {}
    for position, line in enumerate(history, start=1):
        metrics = line.get("metrics", metrics)
        if position % stride == 0 or position == len(history):
            points.append(
                CurvePoint.model_construct(
                    round=line["round"],
                    metrics=finite_figures(metrics),
                    training=finite_figures(line["training"]),
                )
            )
            metrics = {}
    return tuple(points)


def class_figures(line: Record) -> tuple[ClassStatus, ...]:
    """The figures of each class in a record; none where it has none, or of too many for a job's status."""
    per_class, confusion = line.get("perClass", {}), line.get("confusion")
    count = max(map(len, (*per_class.values(), confusion or ())), default=0)
    if count > MAX_CLASSES:
        return ()
    return tuple(
        ClassStatus.model_construct(
            figures={name: values[label] for name, values in per_class.items() if values[label] is not None},
            answers=() if confusion is None else tuple(confusion[label]),
        )
        for label in range(count)
    )


def receipts(line: Record) -> list[tuple[str, str, str]]:
    """Name of the silo, phase, `evaluate` or `preprocessing`, and digest, of each update of a round."""
    found = []
    for task, digest in line["updates"].items():
        for phase in (line["phase"], EVALUATE, PREPROCESSING):
            prefix = f"r{line['round']:05d}-{phase}-"
            if task.startswith(prefix):
                found.append((task.removeprefix(prefix), phase, digest))
                break
    return found


def counted_silos(line: Record) -> list[str]:
    """The silos of which a round's aggregate is made."""
    return list(line["summed"]["silos"] if "summed" in line else line["samples"])


def lost_silos(before: Mapping[str, str], line: Record) -> dict[str, str]:
    """Silos that a job has lost after a round, and why: each failed or was missing, and has answered no round since.

    :param before: those that it had lost before that round.
    """
    number, counted = line["round"], set(counted_silos(line))
    missing = dict.fromkeys(line["missing"], f"was not waited for in round {number}")
    failed = {silo: f"failed in round {number}: {why}" for silo, why in line["failed"].items()}
    return {silo: why for silo, why in {**before, **missing, **failed}.items() if silo not in counted}


def total_samples(line: Record) -> int:
    """Examples of these together."""
    return int(line["summed"]["samples"] if "summed" in line else sum(line.get("samples", {}).values()))


def log_line(line: Record, rounds: int) -> str:
    """A completed round, for a log."""
    silos = {name for name, _, _ in receipts(line)}
    facts = [f"{count_text(len(silos), 'silo')} answered"]
    facts += [f"{silo} failed" for silo in sorted(line["failed"])]
    facts += [f"{silo} was not waited for any more" for silo in line["missing"]]
    facts += [f"{name} {value:.4g}" for name, value in line.get("metrics", {}).items()]
    what = f"round {line['round']} of {rounds} ({line['phase']})"
    return f"{what} is complete after {line['seconds']:.1f} s: {', '.join(facts)}"


def round_record(
    before: Mapping[str, Any],
    exchange: Exchange,
    closed: OpenRound,
    digests: Mapping[str, str],
    sizes: Mapping[str, int],
) -> dict[str, Any]:
    """The line of the history, as far as an exchange's silos fill it; `before` is that of earlier exchanges.

    :param digests: task -> digest of the update that was accepted.
    :param sizes: silo -> bytes of its update.
    """
    return {
        "round": exchange.round,
        "phase": (exchange.of or exchange).phase.name,
        **{key: value for key, value in before.items() if (key, value) != ("phase", PREPROCESSING)},
        "updates": before.get("updates", {}) | digests,
        "bytes": _sum_counts(before.get("bytes", {}), sizes),
        "failed": before.get("failed", {}) | dict(closed.failed),
        "missing": sorted({*before.get("missing", ()), *closed.awaited_silos}),
        "seconds": round(before.get("seconds", 0.0) + closed.elapsed, 3),
    }


def with_metrics(record: Record, *found: Mapping[str, Any]) -> dict[str, Any]:
    """The record with the figures of further answers; scores of one round may come from both aggregator and silos.

    A figure that is not a finite number is left out: a record is a line of JSON, and what reads it may be anything.
    """
    whole = finite_figures(record)
    for figures in map(finite_figures, found):
        metrics = {**whole.get("metrics", {}), **figures.get("metrics", {})}
        whole |= {**figures, **({"metrics": metrics} if metrics else {})}
    return whole


def _sum_counts(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {name: one.get(name, 0) + other.get(name, 0) for name in {**one, **other}}
