"""`fedsilo status` shows the jobs as a table, or one job with its silos and conditions."""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from fedsilo.api.conditions import JobPhase
from fedsilo.api.figures import main_first, main_name, main_score, score_text
from fedsilo.api.lost_silos import lost_silos_text
from fedsilo.api.observed import Object, reference, status_of
from fedsilo.api.scores import ScoresStatus
from fedsilo.api.text import size
from fedsilo.cli.cluster.federation import JOBS, get_job
from fedsilo.cli.cluster.kubectl import Kubectl, add_cluster_arguments
from fedsilo.cli.cluster.round_text import round_name
from fedsilo.cli.cluster.text import plain_line
from fedsilo.cli.cluster.time_format import age, duration, moment_text, since_text, until_text
from fedsilo.cli.columns import columns
from fedsilo.errors import ManifestInvalid
from fedsilo.explanation.explain import has_ended, open_round
from fedsilo.standard_streams import has_lost_reader

POLL_SECONDS = 2.0
"""Time between two requests of `--watch`."""

_CLEAR_SCREEN = "\x1b[H\x1b[2J"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The job, or none for all of the namespace."""
    parser.add_argument("job", metavar="JOB", nargs="?", help="name of the job (default: all)")
    parser.add_argument("-A", "--all-namespaces", action="store_true", help="the jobs of all namespaces")
    parser.add_argument("-w", "--watch", action="store_true", help="show it anew until the job has ended")
    add_cluster_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Print the table of jobs or one job's page, with `--watch` until the job has ended.

    :raises ManifestInvalid: when there is no such job.
    """
    if args.job and args.all_namespaces:
        raise ManifestInvalid(f"{args.job} and --all-namespaces: a name is that of one namespace; use -n")
    kubectl = Kubectl.of(args)
    terminal = sys.stdout.isatty()
    last: Sequence[Object] | None = None
    while True:
        found = _jobs(kubectl, args)
        now = datetime.now().astimezone()
        text = page(found[0], now) if args.job else table(found, now, namespaces=args.all_namespaces)
        if terminal:
            text = cut(text, shutil.get_terminal_size().columns)
            print(f"{_CLEAR_SCREEN}{text}" if args.watch else text, flush=True)
        elif found != last:
            print(text if last is None else f"\n{text}", flush=True)
        last = found
        if not args.watch or (args.job and has_ended(found[0])) or has_lost_reader(sys.stdout):
            return 0
        time.sleep(POLL_SECONDS)


def _jobs(kubectl: Kubectl, args: argparse.Namespace) -> Sequence[Object]:
    if args.job:
        return [get_job(kubectl, args.job)]
    everywhere = ["--all-namespaces"] if args.all_namespaces else []
    found: Sequence[Object] = kubectl.get(JOBS, *everywhere)["items"]
    return found


def cut(text: str, width: int) -> str:
    """Lines cut to the width of a terminal."""
    return "\n".join(
        line if len(line) <= width else f"{line[: max(0, width - 1)]}…" for line in text.splitlines()
    )


def table(jobs: Sequence[Object], now: datetime, *, namespaces: bool) -> str:
    """One line for each job."""
    if not jobs:
        return "there are no jobs" if namespaces else "there are no jobs in this namespace"
    found = [main_score(status_of(job)) for job in jobs]
    names = {score[0] for score in found if score is not None}
    title = "accuracy" if names <= {"accuracy"} else "score"
    head = ("job", "state", "round", "silos", title, "deadline", "method", "age")
    rows = sorted(
        _row(
            job, now, reference(job) if namespaces else job["metadata"]["name"], names_score=title == "score"
        )
        for job in jobs
    )
    return columns([head, *rows], right={4})


def _row(job: Object, now: datetime, name: str, *, names_score: bool) -> tuple[str, ...]:
    status = status_of(job)
    score, deadline = main_score(status), status.get("roundDeadline")
    return (
        name,
        _state(job),
        status.get("progress") or "-",
        status.get("siloProgress") or "-",
        "-"
        if score is None
        else " ".join([*([plain_line(score[0])] if names_score else []), score_text(*score)]),
        "-" if deadline is None or has_ended(job) else _remaining_time(deadline, now),
        job["spec"]["method"]["name"],
        duration(age(job["metadata"]["creationTimestamp"], now)),
    )


def _state(job: Object) -> str:
    return plain_line(status_of(job).get("phase") or JobPhase.PENDING)


def _remaining_time(deadline: str, now: datetime) -> str:
    seconds = -age(deadline, now)
    return f"in {duration(seconds)}" if seconds >= 0 else "past"


def page(job: Object, now: datetime) -> str:
    """The status of one job as text."""
    status = status_of(job)
    spec = job["spec"]
    without = lost_silos_text(status.get("silos") or ()) if has_ended(job) else None
    ended = "" if without is None else f", {plain_line(without)}"
    head = f"{reference(job)}  {_state(job)}{ended}  {spec['method']['name']}, {spec['model']['name']}"
    sections = [[head, *(f"  {name:<10}{value}" for name, value in _facts(job, now))]]
    if silos := status.get("silos"):
        sections.append(_silos(silos))
    if (scores := ScoresStatus.of_status(status)) is not None:
        sections.append(_scores(scores, status))
    if classes := status.get("classes"):
        sections.append(_classes(classes, (spec.get("data") or {}).get("classes")))
    if findings := status.get("findings"):
        sections.append(_findings(findings))
    if conditions := status.get("conditions"):
        sections.append(_conditions(conditions, now))
    return "\n\n".join("\n".join(section) for section in sections if section)


def _facts(job: Object, now: datetime) -> Iterable[tuple[str, str]]:
    status = status_of(job)
    yield "created", moment_text(job["metadata"]["creationTimestamp"], now)
    if begin := status.get("startTime"):
        yield "started", moment_text(begin, now)
    if end := status.get("completionTime"):
        yield "ended", moment_text(end, now)
    if progress := status.get("progress"):
        yield "rounds", f"{plain_line(progress)} complete"
    if (round := open_round(job)) and not has_ended(job):
        answered = f", {plain_line(status['siloProgress'])} silos" if status.get("siloProgress") else ""
        yield "open", f"{round_name(round)} {since_text(round.since, now)}{answered}"
        if round.until:
            yield "deadline", until_text(round.until, now)
    if best := status.get("best"):
        yield "best", f"round {best['round']}: {plain_line(best['metric'])} {_number(best['value'])}"
    for name in ("metrics", "training", "refused"):
        if values := status.get(name):
            yield (
                name,
                ", ".join(
                    f"{plain_line(key)} {_number(values[key])}"
                    for key in main_first(sorted(values), main_name(status))
                ),
            )
    if model := status.get("model"):
        yield "model", f"{model['path']} in claim {model.get('claim') or '-'}"
        yield "sha256", model["sha256"]


def _silos(silos: Sequence[Mapping[str, Any]]) -> list[str]:
    shares = {"kept": "kept", "personalAccuracy": "own model"}
    shown = [name for name in shares if any(name in silo for silo in silos)]
    head = ("  silo", "agent", "round", "last round", "samples", "sent")
    rows: list[tuple[str, ...]] = [(*head, *(shares[name] for name in shown), "message")]
    for silo in silos:
        sent = silo.get("bytesSent")
        rows.append(
            (
                f"  {silo.get('namespace') or '-'}/{silo['name']}",
                plain_line(silo.get("phase") or "-"),
                plain_line(silo.get("state") or "-"),
                _number(silo.get("lastRound")),
                _number(silo.get("samples")),
                "-" if sent is None else size(sent),
                *("-" if silo.get(name) is None else f"{silo[name]:.1%}" for name in shown),
                plain_line(silo.get("message") or ""),
            )
        )
    return [columns(rows, right=range(3, 6 + len(shown)))]


def _scores(scores: ScoresStatus, status: Mapping[str, Any]) -> list[str]:
    """Each silo's scores where all permit it, below what the pooled ones are of."""
    names = scores.names(status)
    head = f"  scores of round {scores.round}: {plain_line(scores.basis)}"
    if scores.refusal is not None:
        head += f"; not by silo: {plain_line(scores.refusal)}"
    rows: list[Sequence[str]] = [
        (f"  {plain_line(silo)}", _number(examples), *map(_number, figures))
        for silo, examples, figures in scores.rows(status)
    ]
    if not rows:
        return [head]
    rows.insert(0, ("  scored on", "examples", *map(plain_line, names)))
    return [head, columns(rows, right=range(1, len(names) + 2))]


def _classes(classes: Sequence[Mapping[str, Any]], names: object) -> list[str]:
    """The latest figures of each class, by the name that the silos or the job have for it."""
    known = names if isinstance(names, list) else []
    figures = sorted({name for found in classes for name in found.get("figures") or ()})
    if not figures:
        return []
    rows: list[Sequence[str]] = [("  class", *map(plain_line, figures))]
    for label, found in enumerate(classes):
        name = found.get("name") or (known[label] if label < len(known) else label)
        values = found.get("figures") or {}
        rows.append((f"  {plain_line(name)}", *(_number(values.get(figure)) for figure in figures)))
    return [columns(rows, right=range(1, len(figures) + 1))]


def _findings(findings: Sequence[Mapping[str, str]]) -> list[str]:
    fields = ("silo", "severity", "code", "place", "value", "remedy")
    rows: list[Sequence[str]] = [("  data of", *fields[1:])]
    for found in findings:
        cells = [plain_line(found[name]) for name in fields]
        rows.append((f"  {cells[0]}", *cells[1:]))
    return [columns(rows)]


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"


def _conditions(conditions: Sequence[Mapping[str, Any]], now: datetime) -> list[str]:
    rows = [("  condition", "status", "reason", "for", "message")]
    for found in conditions:
        held = duration(age(found["lastTransitionTime"], now))
        message = plain_line(found.get("message") or "")
        rows.append((f"  {found['type']}", found["status"], plain_line(found["reason"]), held, message))
    return [columns(rows)]
