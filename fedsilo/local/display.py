"""What a person sees of a local run: a live table in a terminal, plain lines elsewhere, a table at the end."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.table import Column, Table
from rich.text import Text

from fedsilo.api.conditions import AgentPhase, SiloState
from fedsilo.api.data import DataSpec
from fedsilo.api.figures import SMALLER_IS_BETTER, main_first, main_score, score_text
from fedsilo.api.lost_silos import lost_silos_text
from fedsilo.api.scores import ScoresStatus
from fedsilo.api.text import count_text, severities, size
from fedsilo.engine.record import counted_silos
from fedsilo.local.comparison import FEDERATED, POOLED
from fedsilo.local.progress import RunOutcome, RunProgress
from fedsilo.methods.step import PERSONAL_ACCURACY
from fedsilo.silo.personal import TENSORS as PERSONAL_TENSORS

STYLES: Mapping[str, str] = {
    SiloState.REPORTED: "green",
    SiloState.FINISHED: "green",
    SiloState.FAILED: "red",
    SiloState.AWAITED: "yellow",
    AgentPhase.STARTING: "dim",
}


SEVERITY_STYLES: Mapping[str, str] = {"error": "red", "warning": "yellow"}


class Display(Protocol):
    """Shows progress while a run goes on."""

    def showing(self, progress: RunProgress) -> Any:
        """Context in which progress is shown."""

    def update(self, progress: RunProgress) -> None:
        """Show what is new."""


def display_for(stream: TextIO | None) -> Display:
    """A live display where the stream is a terminal, plain lines where it is not, nothing where it is closed."""
    return LiveDisplay(_console(stream)) if stream is not None and stream.isatty() else PlainDisplay(stream)


class PlainDisplay:
    """One line for each completed round and each note."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream
        self._rounds = self._notes = 0
        self._findings: list[Mapping[str, str]] = []
        self._isolation_shown = False

    @contextmanager
    def showing(self, progress: RunProgress) -> Iterator[None]:
        """Print a line about the run that begins, and at its end what is new."""
        self._rounds = len(progress.rounds)
        self._print(f"{_headline(progress)}: starting, working directory {progress.workdir.root}")
        yield
        self.update(progress)

    def update(self, progress: RunProgress) -> None:
        """Print the rounds that are newly complete."""
        if not self._isolation_shown and progress.has_begun:
            isolation = progress.isolation
            if sum(map(len, isolation.values())) == len(progress.federation.silos):
                self._isolation_shown = True
                self._print(_isolation(isolation))
        for found in progress.status.get("findings") or ():
            if found not in self._findings:
                self._findings.append(found)
                self._print(_finding_line(found))
        for record in progress.rounds[self._rounds :]:
            self._print(_round_line(record, progress))
        self._rounds = max(self._rounds, len(progress.rounds))
        for note in progress.notes[self._notes :]:
            self._print(note)
        self._notes = len(progress.notes)

    def _print(self, line: str) -> None:
        if self._stream is not None:
            print(line, file=self._stream, flush=True)


class LiveDisplay:
    """A table that changes in place."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live: Live | None = None

    @contextmanager
    def showing(self, progress: RunProgress) -> Iterator[None]:
        """Draw the table until the run ends."""
        with Live(
            self._draw(progress), console=self._console, refresh_per_second=8, transient=True
        ) as self._live:
            yield

    def update(self, progress: RunProgress) -> None:
        """Draw the present state."""
        assert self._live is not None
        self._live.update(self._draw(progress))

    def _draw(self, progress: RunProgress) -> Group:
        table = Table(expand=False)
        for column in ("silo", "state", "samples", "last round", "sent"):
            table.add_column(column, justify="left" if column in ("silo", "state") else "right")
        for silo in progress.silos:
            state = Text(silo["state"], style=STYLES.get(silo["state"], ""))
            table.add_row(
                silo["name"],
                state,
                _count(silo.get("samples")),
                str(silo["lastRound"]),
                size(silo.get("bytesSent", 0)),
            )
        lines: list[Any] = [Text(_headline(progress), style="bold"), Text(_state(progress)), table]
        if findings := progress.status.get("findings"):
            lines.append(_findings_table(findings))
        isolation = progress.isolation
        if isolation:
            lines.append(Text(_isolation(isolation), style="dim"))
        lines += [Text(note, style="yellow") for note in progress.notes[-3:]]
        return Group(*lines)


def _console(stream: TextIO) -> Console:
    """A console that shows texts as they are: messages quote shapes such as [height, width], columns have any name."""
    width = None if stream.isatty() else 100
    return Console(file=stream, width=width, highlight=False, markup=False, emoji=False)


def show_result(outcome: Mapping[str, Any], baseline: Mapping[str, Any], data: DataSpec) -> None:
    """The table at the end, with the scores of the local baseline where that was computed.

    :param baseline: `alone` and `pooled`, see `fedsilo.local.baseline.scores`; otherwise empty.
    """
    console = _console(sys.stdout)
    if findings := outcome.get("findings"):
        console.print(_findings_table(findings))
    if outcome["phase"] != "Succeeded":
        message = f": {outcome['reason']}: {outcome['message']}"
        console.print(Text(outcome["phase"], style="red").append(message, style="default"), soft_wrap=True)
        return
    rounds = count_text(outcome["rounds"], "round")
    head = f"{outcome['job']}: {outcome['method']}, {rounds}, {outcome['seconds']:.0f} s"
    without = lost_silos_text(outcome["silos"])
    console.print(head if without is None else f"{head}, {without}", style="bold", soft_wrap=True)
    console.print(_result_table(outcome, baseline, data))
    if (scores := ScoresStatus.of_status(outcome)) is not None:
        _show_scores(console, scores, outcome)
    for silo in outcome["silos"]:
        if silo.get("state") == SiloState.FAILED:
            console.print(f"lost    {silo['name']}: {silo.get('message')}", style="red", soft_wrap=True)
    if (remarks := outcome.get("message")) and remarks != without:
        console.print(Text("note    ", style="yellow").append(remarks, style="default"), soft_wrap=True)
    if best := outcome.get("best"):
        console.print(f"best    round {best['round']}: {best['metric']} {best['value']:.4g}", soft_wrap=True)
    if left := [f"{silo['name']} {silo['kept']:.0%}" for silo in outcome["silos"] if "kept" in silo]:
        console.print(f"kept    {', '.join(left)} of the models of the last round", soft_wrap=True)
    if outcome.get("secure"):
        console.print("secure  sums over silos were seen, and nothing of a single silo", soft_wrap=True)
    if private := outcome.get("privacy"):
        console.print(f"privacy {private}", soft_wrap=True)
    if spent := [_budget_text(silo["name"], silo["budget"]) for silo in outcome["silos"] if "budget" in silo]:
        console.print(f"spent   {', '.join(spent)} of the silos' budgets", soft_wrap=True)
    console.print(f"model   {outcome['model']['path']}", soft_wrap=True)
    if PERSONAL_ACCURACY in outcome["metrics"]:
        where = Path(outcome["model"]["path"]).parent / "silos" / "NAME" / "state" / PERSONAL_TENSORS
        console.print(f"own     {where} of each silo", soft_wrap=True)
    console.print(f"sha256  {outcome['model']['sha256']}", soft_wrap=True)


def _show_scores(console: Console, scores: ScoresStatus, outcome: Mapping[str, Any]) -> None:
    """Each silo's scores where all permit it, and what the pooled ones are of."""
    names = scores.names(outcome)
    if rows := scores.rows(outcome):
        table = Table("scored on", Column("examples", justify="right"))
        for name in names:
            table.add_column(_title(name), justify="right")
        for silo, examples, figures in rows[:-1]:
            table.add_row(silo, _count(examples), *_scores_text(names, figures))
        table.add_section()
        whole, examples, figures = rows[-1]
        table.add_row(whole, _count(examples), *_scores_text(names, figures), style="bold green")
        console.print(table)
    console.print(f"scored  {scores.basis}", style=None if scores.is_whole else "red", soft_wrap=True)
    if scores.withheld:
        console.print(f"        not by silo: {scores.refusal}", soft_wrap=True)


def _scores_text(names: Sequence[str], figures: Sequence[float | None]) -> list[str]:
    return [
        "-" if value is None else score_text(name, value) for name, value in zip(names, figures, strict=True)
    ]


def _budget_text(silo: str, budget: Mapping[str, Any]) -> str:
    return f"{silo} {budget['spent']:.3g} of {budget['epsilon']:g}"


def show_comparison(outcomes: Sequence[RunOutcome]) -> None:
    """One line for each of several jobs."""
    console = _console(sys.stdout)
    table = Table("job", "method", title="compared", title_justify="left")
    scores = [main_score(outcome.document) for outcome in outcomes]
    names = {score[0] for score in scores if score is not None}
    for column in ("rounds", "exchanged per silo", "seconds", _title(*names) if len(names) == 1 else "score"):
        table.add_column(column, justify="right")
    for outcome, score in zip(outcomes, scores, strict=True):
        document = outcome.document
        table.add_row(
            document["job"],
            document["method"],
            str(document["rounds"]),
            size(outcome.exchanged),
            f"{document['seconds']:.0f}",
            "-" if score is None else " ".join([*([score[0]] if len(names) > 1 else []), score_text(*score)]),
        )
    console.print(table)


def _findings_table(findings: Sequence[Mapping[str, str]]) -> Table:
    """What the silos say of their data, the gravest first."""
    title = f"data: {severities(findings)}"
    table = Table("silo", "", "place", "what was found, and what to do", title=title, title_justify="left")
    for found in findings:
        style = SEVERITY_STYLES.get(found["severity"], "")
        code = Text(f"{found['severity']} {found['code']}", style=style)
        table.add_row(found["silo"], code, found["place"], f"{found['value']}; {found['remedy']}")
    return table


def _finding_line(found: Mapping[str, str]) -> str:
    place = f"{found['code']}: {found['place']}"
    return f"data of {found['silo']}: {found['severity']}: {place}: {found['value']}; {found['remedy']}"


def _result_table(outcome: Mapping[str, Any], baseline: Mapping[str, Any], data: DataSpec) -> Table:
    alone, pooled = baseline.get("alone", ()), baseline.get("pooled")
    table = Table("trained on", Column("samples", justify="right"))
    # Of several silos' scores there may be a mean and no score of one model, which a baseline has.
    metrics = {name: value for name, value in outcome["metrics"].items() if pooled is None or name in pooled}
    # Of silos' own models alone, which a baseline has no score of either, there is a mean.
    main = main_score({**outcome, "metrics": metrics or outcome["metrics"]})
    by_class = any("classes" in score for score in alone)
    if by_class:
        table.add_column("classes", overflow="fold")
    table.add_column("score" if main is None else _title(main[0]), justify="right")
    scores = {score["name"]: score for score in alone}
    for silo in outcome["silos"]:
        score = scores.get(silo["name"])
        cells = [] if score is None or not by_class else [_classes(score["classes"], data)]
        if score is not None and main is not None:
            cells.append(score_text(main[0], score[main[0]]) if main[0] in score else "-")
        samples = _count((silo if score is None else score).get("samples"))
        table.add_row(f"{silo['name']} alone" if baseline else silo["name"], samples, *cells)
    table.add_section()
    if pooled is not None and main is not None:
        score = score_text(main[0], pooled[main[0]]) if main[0] in pooled else "-"
        table.add_row(POOLED, _count(pooled["samples"]), *([""] if by_class else []), score)
    cells = [*([""] if by_class else []), "-" if main is None else score_text(*main)]
    whole = "all, silos' own models" if main is not None and main[0] == PERSONAL_ACCURACY else FEDERATED
    table.add_row(whole, _count(outcome["samples"]), *cells, style="bold green")
    return table


def _title(metric: str) -> str:
    return f"{metric} (smaller is better)" if metric in SMALLER_IS_BETTER else metric


def _headline(progress: RunProgress) -> str:
    spec = progress.federation.job.spec
    silos = count_text(len(progress.federation.silos), "silo")
    return f"{progress.federation.job}: {spec.method.name}, {spec.model.name}, {silos}"


def _state(progress: RunProgress) -> str:
    status, message = progress.status, progress.condition["message"]
    if not progress.has_begun:
        return str(message)
    parts = [f"round {status['round']}/{status['rounds']}"] if "round" in status else []
    parts += [
        f"{name} {status['metrics'][name]:.4g}"
        for name in main_first(status["metrics"], progress.main_metric)
    ]
    parts += _remaining_time_lines(progress)
    if message:
        parts.append(message)
    return "   ".join(parts)


def _round_line(record: Mapping[str, Any], progress: RunProgress) -> str:
    parts = [f"round {record['round']}/{progress.total}"]
    metrics = record.get("metrics", {})
    parts += [f"{name} {metrics[name]:.4f}" for name in main_first(metrics, progress.main_metric)]
    parts += [f"training {name} {value:.4f}" for name, value in record.get("training", {}).items()]
    parts.append(f"silos {len(counted_silos(record))}/{len(progress.federation.silos)}")
    parts.append(f"{size(sum(record['bytes'].values()))} received")
    for silo, why in record["failed"].items():
        parts.append(f"{silo} failed: {why}")
    scores = ScoresStatus.of_record(record)
    if scores is not None and not scores.is_whole:
        parts.append(f"scored on {scores.basis}")
    if record["missing"]:
        parts.append(f"closed without {', '.join(record['missing'])}")
    return "   ".join([*parts, *_remaining_time_lines(progress)])


def _remaining_time_lines(progress: RunProgress) -> list[str]:
    left = progress.seconds_left
    return [] if left is None or left < 1 else [f"about {left:.0f} s left"]


def _isolation(isolation: Mapping[str, Sequence[str]]) -> str:
    return "trainers: " + "; ".join(f"{', '.join(silos)}: {text}" for text, silos in isolation.items())


def _classes(counts: Sequence[int], data: DataSpec) -> str:
    return (" " if data.class_names is None else ", ").join(
        data.class_label(label) for label, count in enumerate(counts) if count
    )


def _count(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"
