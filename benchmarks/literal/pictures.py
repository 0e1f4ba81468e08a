"""What is on file of a question: a table of its variants, and their learning curves."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.literal.questions import Question, Record
from benchmarks.tables.measures import figure


def table(question: Question, done: Sequence[Record]) -> str:
    """A line of Markdown per variant: the seeds' figures in percent, the most that was reached, and how far variates
    are from each other in the end."""
    lines = ["| variant | each seed | best round | apart, last round |", "|---|---|---|---|"]
    for title in question.variants:
        runs = sorted((run for run in done if run.variant == title), key=lambda run: run.seed)
        if runs:
            figures = " / ".join(_figure(question.measure, run) for run in runs)
            best = " / ".join(f"{max(run.course.accuracies, default=0):.1%}" for run in runs)
            ends = [run.course.measures["apart"][-1] for run in runs if run.course.measures.get("apart")]
            lines.append(f"| {title} | {figures} | {best} | {' / '.join(f'{end:.3g}' for end in ends)} |")
    return "\n".join(lines)


def _figure(measure: str, run: Record) -> str:
    if run.course.lost is not None:
        return f"lost in {run.course.lost}"
    found = figure(measure, run.course.accuracies, run.course.rounds)
    return "–" if found is None else f"{100 * found:.1f}"


def draw(question: Question, done: Sequence[Record], path: Path) -> bool:
    """Write a PNG of the panels that the question names; whether matplotlib was there to do it."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        print("no picture: pip install 'fedsilo[bench]' brings matplotlib", file=sys.stderr)
        return False
    canvas = Figure(figsize=(6.5 * len(question.panels), 4.2), layout="constrained")
    FigureCanvasAgg(canvas)
    for place, (title, variants) in enumerate(question.panels.items(), start=1):
        panel = canvas.add_subplot(1, len(question.panels), place)
        panel.set_title(title)
        panel.set_xlabel("round")
        panel.set_ylabel("test accuracy in percent")
        panel.grid(alpha=0.3)
        for number, variant in enumerate(variants):
            for run in (run for run in done if run.variant == variant):
                label = variant if run.seed == 0 else None
                values = 100 * np.array(run.course.accuracies)
                panel.plot(run.course.rounds, values, label=label, linewidth=1.2, color=f"C{number}")
        panel.legend(fontsize="x-small")
    canvas.savefig(path, dpi=80, metadata={"Software": None})
    return True
