"""Figures of runs, as tables: seconds of a round, what each role uses, and the ratios to the floors.

The machine may become slower or faster from one pair of runs to the next, so a ratio is taken within each pair, of
the runs' medians, and the median of these ratios is shown.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from benchmarks.transport.federation import (
    CHECKED_FLOOR,
    FEDSILO,
    ISOLATED_FLOOR,
    SYSTEMS,
    TLS,
    Load,
    RoleUsage,
    RunMeasurement,
)

MB = 1e6

FLOORS = (TLS, CHECKED_FLOOR, ISOLATED_FLOOR)

Pair = Mapping[str, RunMeasurement]
"""Runs of each system, one after another."""


def quantile(values: Sequence[float], part: float) -> float:
    """The smallest of the values that is not less than such a part of them."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]


def cpu_of(run: RunMeasurement) -> list[float]:
    """CPU seconds of all processes, of each round."""
    return [sum(of_roles) for of_roles in zip(*(use.cpu for use in run.roles.values()), strict=True)]


def seconds_of(run: RunMeasurement) -> list[float]:
    """Seconds of each round."""
    return run.seconds


def ratio(
    pairs: Iterable[Pair], floor: str, of: Callable[[RunMeasurement], list[float]] = seconds_of
) -> float | None:
    """How many times the floor's seconds a round takes; None where no pair has both.

    :param of: what is compared.
    """
    found = [
        statistics.median(of(pair[FEDSILO])) / statistics.median(of(pair[floor]))
        for pair in pairs
        if floor in pair and FEDSILO in pair
    ]
    return statistics.median(found) if found else None


def median_seconds(pairs: Iterable[Pair], system: str) -> float | None:
    """Seconds of a round."""
    seconds = [value for pair in pairs if system in pair for value in pair[system].seconds]
    return statistics.median(seconds) if seconds else None


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def rounds_table(pairs: Sequence[Pair]) -> str:
    """Seconds of a round, CPU seconds of all processes in it, and the ratios."""
    rows = []
    for system in SYSTEMS:
        runs = [pair[system] for pair in pairs if system in pair]
        seconds = [value for run in runs for value in run.seconds]
        if not seconds:
            continue
        cpu = statistics.median(value for run in runs for value in cpu_of(run))
        spread = [f"{value:.2f}" for value in (statistics.median(seconds), min(seconds), max(seconds))]
        times = [ratio(pairs, floor, of) for of in (seconds_of, cpu_of) for floor in FLOORS]
        ratios = ["" if value is None or system != FEDSILO else f"{value:.2f}" for value in times]
        rows.append([system, str(len(seconds)), *spread, f"{cpu:.2f}", *ratios])
    head = ["system", "rounds", "median, s", "quickest", "slowest", "CPU, s"]
    head += [f"{what}x {floor}" for what in ("", "CPU ") for floor in FLOORS]
    return table(head, rows)


def roles_table(pairs: Sequence[Pair], model_bytes: int) -> str:
    """What each role uses in a round: medians over the runs, of memory the largest."""
    found: dict[tuple[str, str], list[RoleUsage]] = defaultdict(list)
    for system in SYSTEMS:
        for pair in pairs:
            for role, use in pair[system].roles.items() if system in pair else ():
                found[system, role].append(use)
    rows = [[*names, *_of_role(uses, model_bytes)] for names, uses in found.items()]
    head = ["system", "role", "processes", "CPU, s", "idle, MB", "above, MB", "in models", "allocated, MB"]
    return table([*head, "all idle (PSS), MB", "read, MB", "written, MB"], rows)


def _of_role(uses: Sequence[RoleUsage], model_bytes: int) -> list[str]:
    cpu = statistics.median(value for use in uses for value in use.cpu)
    above = max(use.above for use in uses)
    megabytes = [
        max(use.allocated for use in uses),
        statistics.median(use.shared for use in uses),
        statistics.median(use.read for use in uses),
        statistics.median(use.written for use in uses),
    ]
    return [
        str(uses[0].processes),
        f"{cpu:.2f}",
        f"{max(use.idle for use in uses) / MB:.0f}",
        f"{above / MB:.0f}",
        f"{above / model_bytes:.2f}",
        *(f"{value / MB:.0f}" for value in megabytes),
    ]


def uploads_line(runs: Sequence[RunMeasurement]) -> str:
    """How long uploads take, and whether any was lost."""
    ends = [run.end for run in runs if run.end is not None]
    lines = []
    for what, values in (
        ("uploads, from the first request to the receipt", [value for run in runs for value in run.uploads]),
        ("receipts, from the last byte sent", [value for run in runs for value in run.receipts]),
    ):
        if values:
            middle, late = (f"{quantile(values, part):.3f}" for part in (0.5, 0.99))
            lines.append(f"{what}: {len(values)}, p50 {middle} s, p99 {late} s")
    lines.append(f"lost updates: {sum(run.lost for run in runs)}")
    lines.append(f"seconds from the last round to the aggregator's end: {statistics.median(ends):.2f}")
    return "; ".join(lines)


def page(load: Load, pairs: Sequence[Pair]) -> str:
    """All tables of one load."""
    size = load.model.size
    runs = [pair[FEDSILO] for pair in pairs if FEDSILO in pair]
    head = f"{load.silos} silos, a model of {size / MB:.1f} MB ({load.processes} processes of each role of the silos)"
    busy = ", ".join(
        f"{pair[system].load_average:.1f}" for pair in pairs for system in SYSTEMS if system in pair
    )
    head += f"; load average after each run: {busy}"
    return "\n\n".join([head, rounds_table(pairs), roles_table(pairs, size), uploads_line(runs)])
