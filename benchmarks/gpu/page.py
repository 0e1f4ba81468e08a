"""The page of all runs that are kept, `docs/results/gpu.md`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.gpu.cases import Part
from benchmarks.gpu.parts import PARTS
from benchmarks.gpu.records import Outcome, Record
from benchmarks.gpu.running import figure_text

HEAD = """# On a GPU

What `python -m benchmarks.gpu` has measured, the newest run first; the page is written from the files in `gpu/`. How to
run it on any machine with a GPU: [gpu.md](../gpu.md).
"""

NO_RUN_TEXT = """
No run on a GPU is kept yet. The tests run every part of the command on the CPU in a reduced form, of which no figure
says anything, so that it is ready for a machine that has one.
"""


def page(records: Sequence[Record]) -> str:
    """The page on all runs, in Markdown."""
    return HEAD + ("".join(map(_run, records)) if records else NO_RUN_TEXT)


def write(records: Sequence[Record], path: Path) -> None:
    """Write the page on all runs to a file."""
    path.write_text(page(records), encoding="utf-8")


def _run(record: Record) -> str:
    device = record.device
    versions = ", ".join(f"{name} {number}" for name, number in record.versions.items())
    memory = f", {device['memory'] / 2**30:.0f} GiB" if device["memory"] else ""
    driver = f", driver {device['driver']}, CUDA {device['cuda']}" if device["driver"] else ""
    head = (
        f"\n## {device['name']}, {record.date[:10]}\n\n"
        f"Commit {record.commit}, {record.size} run{memory}{driver}, {device['cores']} cores; {versions}.\n"
    )
    return head + "".join(_part(part, record) for part in PARTS)


def _part(part: Part, record: Record) -> str:
    cases, late = record.parts.get(part.name, {}), record.late.get(part.name)
    if not cases and late is None:
        return ""
    lines = [
        f"\n### {part.title}\n",
        *([] if record.size == "reduced" else _goals(part, list(cases.values()))),
    ]
    lines += _table({name: case for name, case in cases.items() if case.figures is not None})
    notes = [
        f"- {name}: {outcome.skipped or outcome.error}"
        for name, outcome in cases.items()
        if outcome.figures is None
    ]
    notes += [] if late is None else [f"- {late}"]
    return "\n".join([*lines, *([""] if notes else []), *notes]) + "\n"


def _goals(part: Part, outcomes: Sequence[Outcome]) -> list[str]:
    lines = []
    for goal in part.goals:
        judged = [one for one in outcomes if one.figures is not None and goal.figure in one.figures]
        if judged:
            holding = sum(str(goal) not in one.goals for one in judged)
            lines.append(f"Goal, {goal}: {holding} of {len(judged)} hold.")
    return [" ".join(lines), ""] if lines else []


def _table(cases: Mapping[str, Outcome]) -> list[str]:
    names = list(dict.fromkeys(name for case in cases.values() for name in case.figures or {}))
    if not names:
        return []
    lines = [f"| case | {' | '.join(names)} |", "|---" * (1 + len(names)) + "|"]
    for case, outcome in cases.items():
        figures = outcome.figures or {}
        missed = {goal.partition(":")[0] for goal in outcome.goals}
        cells = [
            ("**" if name in missed else "") + figure_text(figures[name]) + ("**" if name in missed else "")
            if name in figures
            else ""
            for name in names
        ]
        lines.append(f"| {case} | {' | '.join(cells)} |")
    return lines
