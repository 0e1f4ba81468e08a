"""The page `docs/results/attacks.md` on what was answered to each attack, and what it cost."""

from __future__ import annotations

import os
import platform
import ssl
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

from attacks.cost import MB
from attacks.programs import FOLDER
from attacks.run import (
    MOST_MEMORY,
    MOST_MEMORY_OF_A_DOCUMENT,
    POLLED_SERVICES,
    SLOWEST_POLL_SECONDS,
    Row,
    p99,
)

TABLE = FOLDER.parent / "docs" / "results" / "attacks.md"
MOST_ANSWERS = 4
"""Answers that a cell lists."""

HEAD = """# Attacks

`python -m attacks`

Each line is a program of [attacks/](../../attacks/README.md), which says who attacks and what must happen, against the
real process over real HTTPS on one machine. It is repeated for {seconds:g} s. *Processor* is the time of the attacked
process over the time that the attack took, *memory* its peak (VmHWM) above its peak with honest silos. An attack holds
if it is refused as its program demands, without a traceback in the log, at no more than {memory:.0f} MB, and, against
aggregator and gateway, if an honest silo that asks for its task all the time waits less than {wait:.0f} ms at p99.

{machine}.
"""

AGGREGATOR = """
## On a live aggregator

Honest silos play whole rounds over a model of 2 MB, with downloads, uploads and the average; the process then has
{peak:.0f} MB. One aggregator lives through all attacks, each in a round of its own.

| attack | who | answers | processor | memory | p99 of an honest poll | slowest | holds |
|---|---|---|---|---|---|---|---|
"""

GATEWAY = """
## On a live gateway

Honest silos download and upload 2 MB through it; the process then has {peak:.0f} MB, with a cluster in memory.
One gateway lives through all attacks; an honest silo asks for its SiloAgents all the time.

| attack | who | answers | processor | memory | p99 of an honest poll | slowest | holds |
|---|---|---|---|---|---|---|---|
"""

GUARD = """
## On a live guard

Honest tasks are of a model of some bytes; the process then has {peak:.0f} MB. One guard lives through all attacks. The
last figure is the time that it takes, right after the attack, to answer an honest task.

| attack | who | what the guard did | processor | memory | next honest task | holds |
|---|---|---|---|---|---|---|
"""

DOCUMENTS = f"""
## By documents of a stranger

Each command that opens documents opens the honest ones once; the largest process then has {{peak:.0f}} MB. Each
document of an attack is opened once, by a process of its own. An attack holds if no code of the stranger's runs,
nothing is read that is not the stranger's or the user's, and the command ends with one line, at no more than
{MOST_MEMORY_OF_A_DOCUMENT / MB:.0f} MB above that.

| attack | who | exit codes | processor | memory | slowest command | holds |
|---|---|---|---|---|---|---|
"""

SECTIONS = {"aggregator": AGGREGATOR, "gateway": GATEWAY, "guard": GUARD, "documents": DOCUMENTS}


def machine() -> str:
    """Where it was measured."""
    libraries = ", ".join(f"{name} {version(name)}" for name in ("aiohttp", "uvloop", "cryptography"))
    return f"{os.cpu_count()} cores, Python {platform.python_version()}, {libraries}, {ssl.OPENSSL_VERSION}"


def page(seconds: float, rows: Mapping[str, Sequence[Row]]) -> str:
    """The whole page on all attacks, in Markdown."""
    text = HEAD.format(
        seconds=seconds, memory=MOST_MEMORY / MB, wait=1000 * SLOWEST_POLL_SECONDS, machine=machine()
    )
    return text + "".join(section(attacked, rows[attacked]) for attacked in SECTIONS)


def section(attacked: str, rows: Sequence[Row]) -> str:
    """The table of the attacks on one kind of process."""
    lines = "".join(f"| {' | '.join(_cells(row, attacked))} |\n" for row in rows)
    return SECTIONS[attacked].format(peak=rows[0].memory / MB) + lines


def line(row: Row) -> str:
    """A row as the terminal shows it."""
    name, _, answers, *figures = _cells(row, row.program.attacked if row.program else "")
    return f"{name:28} {'  '.join(f'{cell:>8}' for cell in figures)}  {answers}"


def listed_programs(path: Path = TABLE) -> list[str]:
    """The programs that the page lists."""
    cells = [line.split(" | ")[0] for line in path.read_text().splitlines() if line.startswith("| `")]
    return [cell.strip("| `") for cell in cells]


def _cells(row: Row, attacked: str) -> list[str]:
    answers = [f"{what} ({times})" for what, times in row.answers.most_common(MOST_ANSWERS)]
    if len(row.answers) > MOST_ANSWERS:
        answers.append(f"{len(row.answers) - MOST_ANSWERS} more")
    if row.health:
        answers.append(f"`/healthz` p99 {1000 * p99(row.health):.0f} ms")
    honest = row.program is None
    cells = [
        f"honest {'documents' if attacked == 'documents' else 'silos'}"
        if row.program is None
        else f"`{row.program.name}`",
        "" if row.program is None else row.program.by,
        ", ".join(answers),
        f"{100 * row.processor / row.seconds:.0f} %",
        "" if honest else f"{row.memory / MB:.0f} MB",
    ]
    if attacked in POLLED_SERVICES:
        cells.append(f"{1000 * p99(row.waits):.0f} ms")
    cells.append(f"{1000 * max(row.waits, default=0):.0f} ms")
    return [*cells, row.verdict or ("" if honest else "yes")]
