"""What a sweep ends with: means over seeds as a table, all figures as CSV, the metrics over the rounds as a plot."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from typing_extensions import override

from fedsilo.api.figures import main_first, main_name
from fedsilo.api.scores import score_rows
from fedsilo.errors import ManifestInvalid
from fedsilo.files.durable import publish, temporary_file, write_durably
from fedsilo.local.csv_rows import csv_bytes
from fedsilo.local.sweep.grid import setting_text, short_names
from fedsilo.local.sweep.plot_text import labels, plot_title, spoken_metric
from fedsilo.local.sweep.runs import GridRun

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes

CURVES, RESULTS = "curves.svg", "results.csv"
MEANS, ROUNDS, SCORES = "means.csv", "rounds.csv", "scores.csv"


@dataclass(frozen=True)
class SweepResult:
    """A sweep that has ended; it prints as its table.

    :param directory: what it left, see docs/running-locally.md.
    """

    directory: Path
    runs: Sequence[GridRun]

    @property
    def plot(self) -> Path:
        """Path of the SVG file that plots the metrics over the rounds."""
        return self.directory / CURVES

    @override
    def __repr__(self) -> str:
        """The table as text."""
        lines = table(self.runs)
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        return "\n".join(
            "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in lines
        )

    def rows(self) -> list[dict[str, Any]]:
        """A row for each run: its number, the values that it was given, seeds, metrics, and why it failed."""
        return list(_rows(self.runs))

    def means(self) -> list[dict[str, Any]]:
        """A row for each combination of values: its complete `runs` and those that `failed`, and of each metric the
        mean over them, under its name, and the sample standard deviation, as `NAME_deviation`; None where unknown.
        """
        return list(_mean_rows(self.runs))

    def to_pandas(self) -> pandas.DataFrame:
        """The rows as a data frame.

        :raises FedsiloError: pandas is not installed.
        """
        from fedsilo.local.history import data_frame

        return data_frame(self.rows())


def combinations(runs: Sequence[GridRun]) -> list[list[GridRun]]:
    """Runs that differ in their seeds alone, together, in the grid's order."""
    found: dict[str, list[GridRun]] = {}
    for run in runs:
        found.setdefault(run.point.combination, []).append(run)
    return list(found.values())


def table(runs: Sequence[GridRun]) -> list[list[str]]:
    """Headings, and a line for each combination: values, complete runs, mean and standard deviation of metrics."""
    names = short_names(list(runs[0].point.values))
    metrics = _metrics(runs)
    lines = [[*names.values(), "runs", *metrics, "seconds"]]
    for group in combinations(runs):
        values = [setting_text(value) for value in group[0].point.values.values()]
        ended = [run for run in group if run.succeeded]
        scores = [_spread_text(*_spread(ended, metric)) for metric in metrics]
        seconds = [run.document["seconds"] for run in ended]
        complete = str(len(ended)) if len(ended) == len(group) else f"{len(ended)} of {len(group)}"
        lines.append([*values, complete, *scores, f"{statistics.fmean(seconds):.1f}" if seconds else "-"])
    return lines


def write_results(directory: Path, runs: Sequence[GridRun]) -> None:
    """Write the tables and the plot; again they have the same bytes, seconds apart."""
    write_durably(directory / RESULTS, csv_bytes(list(_rows(runs))))
    write_durably(directory / MEANS, csv_bytes(list(_mean_rows(runs))))
    write_durably(directory / ROUNDS, csv_bytes(list(_round_rows(runs))))
    write_durably(directory / SCORES, csv_bytes(list(_score_rows(runs))))
    with temporary_file(directory) as (file, temporary):
        _draw(runs, file)
        publish(file, temporary, directory / CURVES)


def require_plots() -> None:
    """Return if a plot can be drawn: better known before the runs than after them.

    :raises ManifestInvalid: matplotlib is not installed.
    """
    try:
        import matplotlib  # noqa: F401
    except ModuleNotFoundError:
        raise ManifestInvalid("a sweep ends with a plot: pip install 'fedsilo[plots]'") from None


def _metrics(runs: Sequence[GridRun]) -> list[str]:
    """Names of all runs' metrics, the main one of the first run that has any before the others."""
    names = dict.fromkeys(name for run in runs if run.succeeded for name in run.document["metrics"])
    return main_first(names, _main_name(runs))


def _main_name(runs: Sequence[GridRun]) -> str | None:
    return next((name for run in runs if run.succeeded and (name := main_name(run.document))), None)


def _mean_rows(runs: Sequence[GridRun]) -> Iterator[dict[str, Any]]:
    metrics = _metrics(runs)
    for group in combinations(runs):
        ended = [run for run in group if run.succeeded]
        row = {**group[0].point.values, "runs": len(ended), "failed": len(group) - len(ended)}
        for metric in metrics:
            row[metric], row[f"{metric}_deviation"] = _spread(ended, metric)
        seconds = [run.document["seconds"] for run in ended]
        yield row | {"seconds": statistics.fmean(seconds) if seconds else None}


def _spread(runs: Sequence[GridRun], metric: str) -> tuple[float | None, float | None]:
    """Mean and sample standard deviation over the runs that have the metric."""
    known = [run.document["metrics"][metric] for run in runs if metric in run.document["metrics"]]
    mean = statistics.fmean(known) if known else None
    return mean, statistics.stdev(known) if len(known) > 1 else None


def _spread_text(mean: float | None, deviation: float | None) -> str:
    if mean is None:
        return "-"
    return f"{mean:.4f}" if deviation is None else f"{mean:.4f} ± {deviation:.4f}"


def _rows(runs: Sequence[GridRun]) -> Iterator[dict[str, Any]]:
    metrics = _metrics(runs)
    for number, run in enumerate(runs, start=1):
        document = run.document
        scores = document["metrics"] if run.succeeded else {}
        yield {
            "run": number,
            **run.point.values,
            **run.point.seeds,
            **{name: scores[name] for name in metrics if name in scores},
            "rounds": document["rounds"],
            "seconds": document["seconds"],
            "failure": "" if run.succeeded else document["reason"],
            "sha256": document["model"]["sha256"] if run.succeeded else "",
        }


def _round_rows(runs: Sequence[GridRun]) -> Iterator[dict[str, Any]]:
    for number, run in enumerate(runs, start=1):
        for record in run.rounds:
            if "metrics" in record:
                seeds = {**run.point.seeds, "round": record["round"]}
                yield {"run": number, **run.point.values, **seeds, **record["metrics"]}


def _score_rows(runs: Sequence[GridRun]) -> Iterator[dict[str, Any]]:
    for number, run in enumerate(runs, start=1):
        for row in score_rows(run.rounds):
            yield {"run": number, **run.point.values, **run.point.seeds, **row}


def _draw(runs: Sequence[GridRun], file: BinaryIO) -> None:
    """A panel for each metric; a line for each combination, the mean over seeds, within a standard deviation."""
    import matplotlib
    from matplotlib.figure import Figure

    names = (name for run in runs for record in run.rounds for name in record.get("metrics", {}))
    metrics = main_first(dict.fromkeys(names), _main_name(runs))
    # With a salt of its own a figure has the same bytes each time.
    with matplotlib.rc_context({"svg.hashsalt": "fedsilo", "svg.fonttype": "none"}):
        figure = Figure(figsize=(6.5, 3.8 * max(1, len(metrics))), layout="constrained")
        figure.suptitle(plot_title(runs), fontsize="medium")
        for position, metric in enumerate(metrics, start=1):
            _draw_metric(figure.add_subplot(len(metrics), 1, position), combinations(runs), metric)
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})


def _draw_metric(panel: Axes, groups: Sequence[Sequence[GridRun]], metric: str) -> None:
    import matplotlib

    colors = matplotlib.colormaps["viridis"].resampled(len(groups) + 1)
    for number, (group, label) in enumerate(zip(groups, labels(groups), strict=True)):
        rounds, means, spreads = _curve(group, metric)
        panel.plot(rounds, means, marker=".", color=colors(number), label=label)
        low = [mean - spread for mean, spread in zip(means, spreads, strict=True)]
        high = [mean + spread for mean, spread in zip(means, spreads, strict=True)]
        panel.fill_between(rounds, low, high, color=colors(number), alpha=0.15, linewidth=0)
    panel.set_xlabel("round")
    panel.set_ylabel(spoken_metric(metric))
    panel.grid(alpha=0.3)
    if len(groups) > 1:
        panel.legend(fontsize="x-small")


def _curve(group: Sequence[GridRun], metric: str) -> tuple[list[int], list[float], list[float]]:
    """Rounds in which any of the runs has this metric, its mean there and its standard deviation."""
    found: dict[int, list[float]] = {}
    for run in group:
        for record in run.rounds:
            if (value := record.get("metrics", {}).get(metric)) is not None:
                found.setdefault(record["round"], []).append(value)
    rounds = sorted(found)
    spreads = [statistics.stdev(found[number]) if len(found[number]) > 1 else 0.0 for number in rounds]
    return rounds, [statistics.fmean(found[number]) for number in rounds], spreads
