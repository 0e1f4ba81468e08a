"""What was measured, as pictures."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.transport.federation import CHECKED_FLOOR, FEDSILO, ISOLATED_FLOOR, SYSTEMS, TLS, Load
from benchmarks.transport.steps import STEPS
from benchmarks.transport.tables import Pair, median_seconds
from benchmarks.transport.waterfall import RoundSteps, is_outer

COLOURS = {TLS: "0.75", CHECKED_FLOOR: "0.5", ISOLATED_FLOOR: "0.25", FEDSILO: "C0"}


def draw_roles(load: Load, pairs: Sequence[Pair], path: Path) -> None:
    """Seconds of a round of each system, and CPU seconds by role."""
    figure = _figure(10, 4)
    if figure is None:
        return
    seconds, cpu = figure.subplots(1, 2)
    for place, system in enumerate(SYSTEMS):
        values = [value for pair in pairs for value in pair[system].seconds]
        seconds.bar(place, statistics.median(values), color=COLOURS[system], width=0.6)
        seconds.plot([place] * len(values), values, "k.", markersize=4)
        below = 0.0
        for role in pairs[0][system].roles:
            used = statistics.median(value for pair in pairs for value in pair[system].roles[role].cpu)
            cpu.bar(place, used, bottom=below, width=0.6, label=f"{system}: {role}")
            below += used
    for panel, what in ((seconds, "seconds of a round"), (cpu, "CPU seconds of a round")):
        panel.set_xticks(range(len(SYSTEMS)), SYSTEMS)
        panel.set_ylabel(what)
        panel.grid(alpha=0.3, axis="y")
    cpu.legend(fontsize="x-small")
    figure.suptitle(f"{load.silos} silos, model of {load.model.size / 1e6:.0f} MB")
    _save(figure, path)


def draw_scaling(found: Sequence[tuple[Load, Sequence[Pair]]], path: Path) -> None:
    """Seconds of a round against the bytes that it moves, and the aggregator's memory against the number of silos."""
    figure = _figure(11, 4.5)
    if figure is None:
        return
    seconds, memory = figure.subplots(1, 2)
    for system in SYSTEMS:
        points = sorted(
            (2 * load.silos * load.model.size / 1e6, middle)
            for load, pairs in found
            if (middle := median_seconds(pairs, system)) is not None
        )
        if points:
            seconds.plot(*zip(*points, strict=True), "o-", label=system, color=COLOURS[system])
    for load, pairs in found:
        runs = [pair[FEDSILO] for pair in pairs if FEDSILO in pair]
        size = load.model.size / 1e6
        name = f" {load.silos} x {size:.0f} MB"
        middle = statistics.median(value for run in runs for value in run.seconds)
        seconds.annotate(name, (2 * load.silos * size, middle), fontsize="x-small")
        above = max(run.roles["aggregator"].above for run in runs) / 1e6
        memory.plot(load.silos, above, "o", color="C0")
        memory.annotate(name, (load.silos, above), fontsize="x-small")
    seconds.set(xscale="log", yscale="log", xlabel="MB moved in a round", ylabel="seconds of a round")
    memory.set(xscale="log", yscale="log", xlabel="silos", ylabel="aggregator above idle, MB")
    for panel in (seconds, memory):
        panel.grid(alpha=0.3)
    seconds.legend()
    _save(figure, path)


def draw_steps(steps: RoundSteps, path: Path) -> None:
    """Draw the steps of a round as bars over time: a line for each step of the aggregator, and one for each guard and
    trainer.
    """
    figure = _figure(12, 8)
    if figure is None:
        return
    panel = figure.subplots()
    lanes: dict[str, int] = {}
    colours = {(step.role, step.label): f"C{number % 10}" for number, step in enumerate(STEPS)}
    shown = set()
    order = {(step.role, step.label): number for number, step in enumerate(STEPS)}
    for one in sorted(steps.found, key=lambda one: (one.role, order[one.role, one.label], one.where)):
        step = STEPS[order[one.role, one.label]]
        if one.role != "aggregator" and not is_outer(step):
            continue
        process = one.where.partition(".")[0]
        name = one.label if one.role == "aggregator" else f"{one.role} {process}"
        lane = lanes.setdefault(f"{one.role}: {name}" if one.role == "aggregator" else name, len(lanes))
        begin = one.began - steps.began
        label = None if (one.role, one.label) in shown else f"{one.role}: {one.label.strip()}"
        shown.add((one.role, one.label))
        width = max(one.ended - steps.began - begin, steps.seconds / 1000)
        panel.barh(
            lane, width, left=begin, height=0.8, alpha=0.6, color=colours[one.role, one.label], label=label
        )
    panel.set_yticks(range(len(lanes)), list(lanes), fontsize="x-small")
    panel.invert_yaxis()
    panel.set_xlabel("seconds since the end of the round before")
    panel.legend(fontsize="x-small", ncols=2)
    panel.grid(alpha=0.3, axis="x")
    _save(figure, path)


def _figure(width: float, height: float) -> Any:
    """Create an empty figure; None where matplotlib is not there."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        print("no picture: pip install 'fedsilo[bench]' brings matplotlib", file=sys.stderr)
        return None
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _save(figure: Any, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=90, metadata={"Software": None})
    print(f"wrote {path}", file=sys.stderr)
