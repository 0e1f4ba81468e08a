"""Running programs, and what each has cost: a row of the table."""

from __future__ import annotations

import http.client
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from attacks.cost import MB, Cost
from attacks.handed_over import HandedOver
from attacks.live_aggregator import LiveAggregator
from attacks.live_gateway import LiveGateway
from attacks.live_guard import LiveGuard
from attacks.programs import Program

Target = LiveAggregator | LiveGateway | LiveGuard | HandedOver

SECONDS = 2.0
"""Time for which a program is repeated."""

HONEST_SECONDS = 5.0
"""Time for which honest silos are measured."""

MOST_CHARACTERS = 200
"""Most characters of a fault that are printed."""

MOST_MEMORY = 100 * MB
"""Memory of the attacked process above its peak with honest silos."""

MOST_MEMORY_OF_A_DOCUMENT = 64 * MB
"""Memory of a command above its peak with honest documents."""

OWN_INTERPRETER = ("env",)
"""Before the command of a process whose memory is measured, which shall share none with the process of the tests."""

POLLED_SERVICES = ("aggregator", "gateway")
"""What an honest silo polls while it is attacked."""

SLOWEST_POLL_SECONDS = 0.25
"""p99 of the seconds that a poll of the honest silo takes."""


def p99(seconds: Sequence[float]) -> float:
    """The time in which 99 % of them were over."""
    return sorted(seconds)[min(len(seconds) - 1, int(0.99 * len(seconds)))]


@dataclass(frozen=True)
class Row:
    """One line of the table.

    :param program: None for honest silos, or for honest documents.
    :param answers: what was answered or done, with how often.
    :param seconds: that it took.
    :param memory: peak of the process in bytes, above the peak with honest silos; for these, the peak itself.
    :param waits: seconds of each poll of the honest silo, or of one honest task of the guard, or of each command.
    :param health: seconds that `/healthz` took, where the program asks for it.
    :param fault: what was not refused as it must be; "" if all was.
    """

    program: Program | None
    answers: Counter[str]
    seconds: float
    processor: float
    memory: float
    waits: Sequence[float]
    fault: str
    health: Sequence[float] = ()

    @property
    def verdict(self) -> str:
        """Why the attack does not hold; "" if it was refused, at a price within the limits."""
        if self.fault or self.program is None:
            return self.fault
        most = MOST_MEMORY_OF_A_DOCUMENT if self.program.attacked == "documents" else MOST_MEMORY
        if self.memory > most:
            return f"{self.memory / MB:.0f} MB above the honest case"
        if self.program.attacked in POLLED_SERVICES and p99(self.waits) > SLOWEST_POLL_SECONDS:
            return f"p99 of an honest poll {1000 * p99(self.waits):.0f} ms"
        if self.health and p99(self.health) > SLOWEST_POLL_SECONDS:
            return f"p99 of /healthz {1000 * p99(self.health):.0f} ms"
        return ""


def on_aggregator(folder: Path, chosen: Sequence[Program], seconds: float = SECONDS) -> Iterator[Row]:
    """Honest silos, and then each program, in a round of its own, against one aggregator."""
    target = LiveAggregator(folder, OWN_INTERPRETER)
    try:
        honest = _honest_rounds(target)
        yield honest
        for program in chosen:
            target.play_round()  # The job goes on, and the aggregator returns memory after each of its rounds.
            began, meter = time.monotonic(), target.meter()
            target.answers, target.health = Counter(), []
            fault = _repeat(program, target, seconds)
            took = time.monotonic() - began
            waits = target.honest_polls(began)
            row = _row(program, target.answers, took, meter.read(), honest, waits, fault or target.defects())
            yield replace(row, health=target.health)
    finally:
        target.close()


def on_gateway(folder: Path, chosen: Sequence[Program], seconds: float = SECONDS) -> Iterator[Row]:
    """Honest silos, and then each program against one gateway that lives as long as all of them."""
    target = LiveGateway(folder)
    try:
        began, meter = time.monotonic(), target.meter()
        while time.monotonic() - began < HONEST_SECONDS:
            target.transfer_honestly()
            target.note("transfer")
        waits, cost = target.honest_polls(began), meter.read()
        took = time.monotonic() - began
        honest = Row(None, target.answers, took, cost.processor, cost.peak, waits, target.defects())
        yield honest
        for program in chosen:
            began, meter = time.monotonic(), target.meter()
            target.answers = Counter()
            fault = _repeat(program, target, seconds)
            took = time.monotonic() - began
            waits = target.honest_polls(began)
            yield _row(program, target.answers, took, meter.read(), honest, waits, fault or target.defects())
    finally:
        target.close()


def on_guard(folder: Path, chosen: Sequence[Program], seconds: float = SECONDS) -> Iterator[Row]:
    """Honest tasks, and then each program against one guard that lives as long as all of them."""
    target = LiveGuard(folder, before=OWN_INTERPRETER)
    try:
        honest = _honest_tasks(target)
        yield honest
        for program in chosen:
            began, meter = time.monotonic(), target.meter()
            target.answers = Counter()
            fault = _repeat(program, target, seconds)
            took = time.monotonic() - began
            waits = [target.answer_honestly()]
            yield _row(program, target.answers, took, meter.read(), honest, waits, fault or target.defects())
    finally:
        target.close()


def by_documents(folder: Path, chosen: Sequence[Program], _seconds: float = SECONDS) -> Iterator[Row]:
    """Honest documents, and then those of each program, each opened once by a process of its own."""
    target = HandedOver(folder)
    began, meter = time.monotonic(), target.meter()
    target.open_honestly()
    took, cost = time.monotonic() - began, meter.read()
    honest = Row(None, target.answers, took, cost.processor, cost.peak, meter.seconds(), target.defects())
    yield honest
    for program in chosen:
        target.forget()
        began, meter = time.monotonic(), target.meter()
        target.answers = Counter()
        fault = attempt(program, target)
        took, waits = time.monotonic() - began, meter.seconds()
        yield _row(program, target.answers, took, meter.read(), honest, waits, fault or target.defects())


def attempt(program: Program, target: Target) -> str:
    """Run one attack once, and return what was not refused as it must be, or ""."""
    try:
        program.attack(target)
    except (AssertionError, OSError, http.client.HTTPException) as error:
        return f"{type(error).__name__}: {error}"[:MOST_CHARACTERS]
    return ""


def _repeat(program: Program, target: Target, seconds: float) -> str:
    """Do it until the time is over; what was not refused as it must be, or ""."""
    end = time.monotonic() + seconds
    fault = attempt(program, target)
    while not fault and not program.once and time.monotonic() < end:
        fault = attempt(program, target)
    time.sleep(max(0.0, end - time.monotonic()))  # so that there are polls to judge by
    return fault


def _row(
    program: Program,
    answers: Counter[str],
    took: float,
    cost: Cost,
    honest: Row,
    waits: Sequence[float],
    fault: str,
) -> Row:
    memory = max(0.0, cost.peak - honest.memory)
    return Row(program, answers, took, cost.processor, memory, waits, fault)


def _honest_rounds(target: LiveAggregator) -> Row:
    """What the silos cost that do their work: whole rounds with downloads, uploads and the average."""
    target.play_round()
    began, meter = time.monotonic(), target.meter()
    target.answers = Counter()
    while time.monotonic() - began < HONEST_SECONDS:
        target.play_round()
        target.note("round")
    took = time.monotonic() - began
    waits, cost = target.honest_polls(began), meter.read()
    return Row(None, target.answers, took, cost.processor, cost.peak, waits, target.defects())


def _honest_tasks(target: LiveGuard) -> Row:
    target.answer_honestly()
    began, meter = time.monotonic(), target.meter()
    target.answers = Counter()
    waits = []
    while time.monotonic() - began < HONEST_SECONDS:
        waits.append(target.answer_honestly())
        target.note("task")
    took, cost = time.monotonic() - began, meter.read()
    return Row(None, target.answers, took, cost.processor, cost.peak, waits, target.defects())
