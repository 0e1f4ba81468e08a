"""The page of a table: ours beside the paper's, column by column."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.tables.cells import Cell
from benchmarks.tables.definition import ReportedFigure, TableSelection
from benchmarks.tables.measures import COSTS, LOCAL, PERSONAL_DRAWN, PERSONAL_MEASURE, figure, unit
from benchmarks.tables.results import Run

FoundRuns = Mapping[Cell, Run]
Place = tuple[str, str]
"""Row and column of a table's cell."""


@dataclass(frozen=True)
class Figure:
    """The results of one cell over its seeds.

    :param values: of each run, in percent or rounds.
    :param runs: how many there are; some may have no value, as when a threshold was not reached.
    """

    values: Sequence[float]
    runs: int

    @property
    def mean(self) -> float:
        """Mean of the figures over the runs."""
        return statistics.fmean(self.values)

    @property
    def spread(self) -> float:
        """Sample standard deviation over the runs, 0 of one."""
        return statistics.stdev(self.values) if len(self.values) > 1 else 0.0

    def text(self, measure: str) -> str:
        """Mean and sample standard deviation."""
        if len(self.values) < self.runs and measure in (PERSONAL_MEASURE, PERSONAL_DRAWN):
            return "its silos have no models of their own"
        if len(self.values) < self.runs and not measure.startswith("rounds:"):
            return "not measured"
        if len(self.values) < self.runs:
            return f"not reached in {self.runs - len(self.values)} of {self.runs}"
        digits = unit(measure).digits
        spread = f" ± {self.spread:.{digits}f}" if self.runs > 1 else ""
        return f"{self.mean:.{digits}f}{spread}"


def figures(chosen: TableSelection, found: FoundRuns) -> dict[Place, Figure]:
    """The figure of every place that has runs; of a mean, those seeds count that all its columns have."""
    runs: dict[Place, dict[int, Run]] = {}
    for cell, run in found.items():
        runs.setdefault((cell.row, cell.column), {})[cell.seed] = run
    result = {}
    for row, column in itertools.product(chosen.rows, chosen.columns):
        by_seed = [runs.get((row, name), {}) for name in chosen.table.measured_columns(column)]
        seeds = set.intersection(*(set(some) for some in by_seed))
        measure = chosen.table.columns[column].measure or chosen.table.measure
        values = [_mean(measure, [some[seed] for some in by_seed]) for seed in sorted(seeds)]
        if values:
            result[row, column] = Figure([value for value in values if value is not None], len(values))
    return result


def _mean(measure: str, runs: Iterable[Run]) -> float | None:
    """In the measure's unit; none where a run has no such figure."""
    values = [_of_run(measure, run) for run in runs]
    known = [value for value in values if value is not None]
    return unit(measure).factor * statistics.fmean(known) if len(known) == len(values) else None


def _of_run(measure: str, run: Run) -> float | None:
    if measure == PERSONAL_MEASURE:
        return run.personal
    if measure == LOCAL:
        return run.local
    if measure == PERSONAL_DRAWN:
        return run.personal_drawn
    if measure in COSTS:
        return run.costs.get(measure)
    return figure(measure, run.accuracies, run.rounds, run.by_class)


def page(chosen: TableSelection, found: FoundRuns, why: Mapping[Place, str], picture: str | None) -> str:
    """The whole page in Markdown.

    :param why: why cells were not run.
    :param picture: file of the learning curves, if there is one.
    """
    ours = figures(chosen, found)
    done = [column for column in chosen.columns if any((row, column) in ours for row in chosen.rows)]
    lines = [*_head(chosen, found.values())]
    if picture:
        text = "Accuracy against bytes" if chosen.table.wide else "Learning curves, mean over seeds"
        lines += [f"![{text}]({picture})", ""]
    if chosen.table.wide:
        return "\n".join([*lines, *_wide_table(chosen, ours, why)])
    for column in done:
        lines += _column(chosen, column, ours, why)
    rest = [chosen.table.columns[column].title for column in chosen.columns if column not in done]
    if rest:
        lines += ["## Not run", "", *(f"- {title}" for title in rest), ""]
    return "\n".join(lines)


def _head(chosen: TableSelection, runs: Iterable[Run]) -> list[str]:
    table = chosen.table
    lines = [f"# {chosen.name}: {table.title}", "", chosen.paper.citation, ""]
    if chosen.scale == "reduced":
        compared = "Levels cannot be compared with the paper's, which are shown all the same; the order of methods can."
        note = f"**Reduced scale, the same for all methods**: {table.reduced.note.rstrip('.')}."
        lines += [f"{note} {compared}" if table.values else note, ""]
    lines += [*(f"- {note}" for note in table.notes), ""] if table.notes else []
    runs = list(runs)
    commands = sorted({run.command for run in runs})
    lines += [f"`{command}`" for command in commands] + ([""] if commands else [])
    lines += [f"- {text}" for text in sorted({_machine_text(run) for run in runs})]
    return [*lines, ""]


def _machine_text(run: Run) -> str:
    parts = [value if key in ("processor", "gpu") else f"{key} {value}" for key, value in run.machine.items()]
    return f"{run.date[:10]}, {', '.join(parts)}"


def _column(
    chosen: TableSelection, column: str, ours: Mapping[Place, Figure], why: Mapping[Place, str]
) -> list[str]:
    definition = chosen.table.columns[column]
    measure = definition.measure or chosen.table.measure
    lines = [
        f"## {definition.title}",
        "",
        f"{unit(measure).name} ({measure}), mean ± standard deviation over seeds{_words_of(chosen, column)}",
        "",
        "| method | ours | seeds | paper | difference |",
        "|---|---|---|---|---|",
    ]
    for row in chosen.rows:
        mine, theirs = ours.get((row, column)), chosen.table.reported_figure(row, column)
        if mine is None:
            text, seeds = _absence_reason(chosen, (row, column), ours, why), ""
        else:
            text, seeds = mine.text(measure), str(mine.runs)
        lines.append(f"| {row} | {text} | {seeds} | {_paper(theirs)} | {_difference(mine, theirs)} |")
    return [*lines, ""]


def _wide_table(chosen: TableSelection, ours: Mapping[Place, Figure], why: Mapping[Place, str]) -> list[str]:
    """All columns side by side, and below them which methods have no run and why."""
    columns = [chosen.table.columns[name] for name in chosen.columns]
    measures = [column.measure or chosen.table.measure for column in columns]
    lines = [
        "mean ± standard deviation over seeds; a dash where there is nothing to measure",
        "",
        f"| method | seeds | {' | '.join(column.title for column in columns)} |",
        f"|---|---|{'---|' * len(columns)}",
    ]
    absent: dict[str, list[str]] = {}
    for row in chosen.rows:
        found = [ours.get((row, name)) for name in chosen.columns]
        runs = max((figure.runs for figure in found if figure is not None), default=0)
        if not runs:
            absent.setdefault(_absence_reason(chosen, (row, chosen.columns[0]), ours, why), []).append(row)
            continue
        texts = [
            "–" if figure is None or len(figure.values) < figure.runs else figure.text(measure)
            for figure, measure in zip(found, measures, strict=True)
        ]
        lines.append(f"| {row} | {runs} | {' | '.join(texts)} |")
    rest = [f"- {', '.join(rows)}: {reason}" for reason, rows in absent.items()]
    return [*lines, "", *(["Not run:", "", *rest, ""] if rest else [])]


def _words_of(chosen: TableSelection, column: str) -> str:
    titles = [chosen.table.columns[name].title for name in chosen.table.columns[column].mean_of]
    return f" that all of these have: {'; '.join(titles)}" if titles else ""


def _absence_reason(
    chosen: TableSelection, place: Place, ours: Mapping[Place, Figure], why: Mapping[Place, str]
) -> str:
    """Why there is no figure: one reason for all columns that it would be of, or those that lack runs."""
    row, column = place
    names = chosen.table.measured_columns(column)
    lacking = [name for name in names if (row, name) not in ours]
    reasons = {why.get((row, name), "not run") for name in lacking}
    if not lacking:
        return "no seed that all have"
    if len(lacking) == len(names) and len(reasons) == 1:
        return reasons.pop()
    return f"lacks {'; '.join(chosen.table.columns[name].title for name in lacking)}"


def _paper(theirs: ReportedFigure | None) -> str:
    if theirs is None:
        return "–"
    return f"{theirs.mean:g}" if theirs.spread is None else f"{theirs.mean:g} ± {theirs.spread:g}"


def _difference(mine: Figure | None, theirs: ReportedFigure | None) -> str:
    if mine is None or theirs is None or len(mine.values) < mine.runs:
        return ""
    return f"{mine.mean - theirs.mean:+.1f}"
