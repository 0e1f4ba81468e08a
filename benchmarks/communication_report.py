"""What `python -m benchmarks.communication` has run, as a table in Markdown and a picture."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

Line = dict[str, Any]

MARKS = "osD^v<>Pp*Xh"


def report(lines: Sequence[Line], encodings: Sequence[str], picture: Path) -> str:
    """Tables of datasets and methods; the picture is drawn where matplotlib is there."""
    found = []
    for dataset, method in dict.fromkeys((line["dataset"], line["method"]) for line in lines):
        own = [line for line in lines if (line["dataset"], line["method"]) == (dataset, method)]
        first = own[0]
        found += [
            f"### {method}, {dataset}",
            "",
            f"{first['samples']} training and {first['test']} test images, {first['silos']} silos, "
            f"{first['rounds']} rounds.",
            "",
            "| encoding | kB up | kB down | accuracy, % | seeds |",
            "|---|---|---|---|---|",
            *(row(encoding, chosen) for encoding in encodings if (chosen := _lines_of(own, encoding))),
            "",
        ]
    draw(lines, encodings, picture)
    return "\n".join(found)


def row(encoding: str, lines: Sequence[Line]) -> str:
    """A line of the table: bytes are those of one silo's exchange, the mean of all."""
    up, down = (bytes_of(lines, what) / 1000 for what in ("up", "down"))
    return f"| {encoding} | {up:.1f} | {down:.1f} | {spread(lines)} | {len(lines)} |"


def bytes_of(lines: Sequence[Line], what: str) -> float:
    """Bytes of one silo in one exchange, the mean over all exchanges of these runs."""
    total, exchanges = (sum(int(line[key]) for line in lines) for key in (what, "exchanges"))
    return total / exchanges


def spread(lines: Sequence[Line]) -> str:
    """Mean and sample standard deviation of the accuracy in percent, the latter of several seeds.

    Seeds with which training has diverged are in neither; they are counted beside them.
    """
    accuracies = accuracies_of(lines)
    diverged = f"{len(lines) - len(accuracies)} diverged" if len(accuracies) < len(lines) else ""
    if not accuracies:
        return diverged
    deviation = f" ± {statistics.stdev(accuracies):.1f}" if len(accuracies) > 1 else ""
    return f"{statistics.fmean(accuracies):.1f}{deviation}" + (f", {diverged}" if diverged else "")


def accuracies_of(lines: Sequence[Line]) -> list[float]:
    """In percent, of the runs that have not diverged."""
    return [100 * line["accuracy"] for line in lines if line["accuracy"] is not None]


def _lines_of(lines: Sequence[Line], encoding: str) -> list[Line]:
    return [line for line in lines if line["encoding"] == encoding]


def draw(lines: Sequence[Line], encodings: Sequence[str], path: Path) -> bool:
    """Bytes against accuracy, a panel for each dataset and method; whether matplotlib was there."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        print("no picture: pip install 'fedsilo[bench]' brings matplotlib", file=sys.stderr)
        return False
    panels = list(dict.fromkeys((line["dataset"], line["method"]) for line in lines))
    columns = min(3, len(panels))
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(4.6 * columns, 3.6 * rows), layout="constrained")
    FigureCanvasAgg(figure)
    for position, (dataset, method) in enumerate(panels, start=1):
        panel = figure.add_subplot(rows, columns, position)
        panel.set_title(f"{method}, {dataset}")
        panel.set_xlabel("kB of a silo's exchange, both directions")
        panel.set_ylabel("test accuracy in percent")
        panel.grid(alpha=0.3)
        own = [line for line in lines if (line["dataset"], line["method"]) == (dataset, method)]
        for number, encoding in enumerate(encodings):
            chosen = _lines_of(own, encoding)
            if accuracies := accuracies_of(chosen):
                deviation = statistics.stdev(accuracies) if len(accuracies) > 1 else 0
                size = (bytes_of(chosen, "up") + bytes_of(chosen, "down")) / 1000
                mean = statistics.fmean(accuracies)
                panel.errorbar(
                    size, mean, deviation, fmt=MARKS[number], label=encoding, color=f"C{number % 10}"
                )
        if position == 1:
            panel.legend(fontsize="xx-small")
    figure.savefig(path, dpi=90, metadata={"Software": None})
    return True
