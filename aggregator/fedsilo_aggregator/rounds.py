"""Driving the round engine, by serving time, through closed rounds to the end."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import ssl
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

from fedsilo.engine.record import log_line
from fedsilo.engine.round_engine import RoundEngine
from fedsilo.engine.status import StatusSource
from fedsilo.engine.status_sinks import StatusSink
from fedsilo.errors import ManifestInvalid
from fedsilo.files.durable import is_disk_full
from fedsilo.files.full_disk import FULL_DISK_SECONDS
from fedsilo.http.listener import Listener
from fedsilo.http.refusals import RefusingRunner
from fedsilo.logs import set_log_facts
from fedsilo.process import TERMINATED_EXIT_CODE
from fedsilo_aggregator.http import AggregatorService
from fedsilo_aggregator.lost_silos import LostSilosFile

log = logging.getLogger("fedsilo.aggregator")

TICK_SECONDS = 0.25
"""Interval at which the deadline is checked."""

DRAIN_SECONDS = 30.0
"""Time that silos get to fetch their last task, and to say that they have it."""

RECENT_SECONDS = 60.0
"""Longest silence of a silo for which the end still waits."""

SHUTDOWN_SECONDS = 1.0
"""Time that requests get to end by themselves when the service ends; an interrupted upload continues later."""

CLOSING_SECONDS = 0.25
"""Time that closed connections get to end; a silo that was told the end closes its own."""

READ_BYTES = 64 << 10
"""Amount of a body that a connection keeps until it is asked for; large ones have buffers of their own."""

STATUS_SECONDS = 0.25
"""Shortest time between two statuses while rounds go on: each names every silo, and is a file on the disk."""


def server_context(certificate: Path, key: Path) -> ssl.SSLContext:
    """TLS 1.3 with the job's server certificate.

    :raises ManifestInvalid: when certificate and key cannot be read, or do not belong together.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    try:
        context.load_cert_chain(certificate, key)
    except OSError as error:  # an SSLError is one
        raise ManifestInvalid(
            f"certificate {certificate} with key {key}: cannot be used ({error.strerror}); name readable files in PEM "
            "that belong together"
        ) from error
    return context


@asynccontextmanager
async def leaving_on_sigterm() -> AsyncIterator[None]:
    """On SIGTERM, end the block in order and then the process, with 143.

    Work in a thread, such as a fold that may take minutes, is not waited for, nor the interpreter's shutdown, which
    takes seconds: the next process finds everything that it needs.
    """
    task, stopped = asyncio.current_task(), asyncio.Event()
    assert task is not None

    def stop() -> None:
        log.info("stopped by a signal; the open round goes on when the aggregator is started again")
        stopped.set()
        task.cancel()

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop)
    try:
        yield
    finally:
        if stopped.is_set():
            os._exit(TERMINATED_EXIT_CODE)


def spare_collector() -> None:
    """Leave what the start has made to the end of the process: a pass over it would stop all requests for long."""
    gc.collect()
    gc.freeze()


def runner_of(service: AggregatorService) -> RefusingRunner:
    """What serves the job, whatever carries the connections."""
    return RefusingRunner(
        service.application(),
        service.refuse,
        service.connections,
        access_log=None,
        read_bufsize=READ_BYTES,
        auto_decompress=False,
        shutdown_timeout=SHUTDOWN_SECONDS,
    )


async def serve(
    service: AggregatorService,
    status: StatusSource,
    sink: StatusSink,
    host: str,
    port: int,
    tls: ssl.SSLContext,
    lost: LostSilosFile,
) -> None:
    """Serve until the job has ended and its silos have been informed."""
    runner = runner_of(service)
    await runner.setup()
    spare_collector()
    try:
        await Listener(runner, service.connections, host, port, tls).start()
        log.info("serving job %s on %s:%d", service.engine.identity.name, host or "*", port)
        await run_rounds(service, status, sink, lost)
    finally:
        await runner.cleanup()
        await _connections_end(service)


async def _connections_end(service: AggregatorService) -> None:
    """Return when the last answers have left: what a connection that is closed has not sent yet, it still sends."""
    until = time.monotonic() + CLOSING_SECONDS
    while len(service.connections) and time.monotonic() < until:
        await asyncio.sleep(CLOSING_SECONDS / 50)


async def run_rounds(
    service: AggregatorService, status: StatusSource, sink: StatusSink, lost: LostSilosFile
) -> None:
    """Run rounds to the end, then let every silo fetch its last task."""
    engine, message, began = service.engine, "", time.monotonic()
    completed, published, said = len(engine.history()), float("-inf"), message
    # What an earlier process heard counts as heard: silos that have answered in the last round wait for its end.
    for silo in _answered_before(engine):
        service.last_seen.setdefault(silo, began)
    while not engine.ended:
        if engine.current_exchange is not None:
            set_log_facts(round=engine.current_exchange.exchange.round)
        # Serving time is the time in which silos can answer: neither folding nor a full disk counts.
        before = time.monotonic()
        await service.wait_for_change(TICK_SECONDS)
        served = time.monotonic() - before
        try:
            if await asyncio.to_thread(lost.fail_tasks, engine):
                service.announce_change()
            await _advance(service, served)
            message = ""
        except OSError as error:
            if not is_disk_full(error):
                raise
            message = "the aggregator's disk is full; the round goes on when there is space"
            log.warning(message)
            await asyncio.sleep(FULL_DISK_SECONDS)
        # Also after a full disk: a round may be stored while there is no space for the next.
        for record in engine.history()[completed:]:
            log.info(log_line(record, engine.rounds))
        completed = len(engine.history())
        now = time.monotonic()
        if now - published >= STATUS_SECONDS or message != said:
            sink.publish(status.status(message))
            published, said = now, message
    if engine.failure is None:
        log.info("the job is complete; its silos fetch their last task")
    service.announce_change()
    sink.publish(status.status(message))
    await _drain(service, lost)


def _answered_before(engine: RoundEngine) -> Iterable[str]:
    """Silos that may wait for the end of the job: any, if the job ended before this process began."""
    if (current := engine.current_exchange) is not None:
        return [silo for silo, task in current.tasks.items() if task.id in current.accepted]
    return engine.identity.silos if engine.ended else ()


async def _advance(service: AggregatorService, served: float) -> None:
    """Count `served` seconds of serving time, and settle the exchange when it is over."""
    await asyncio.to_thread(service.engine.wait, served)
    if service.engine.awaits_answers:
        return
    await service.uploads.close()
    closed = service.engine.current_exchange
    await asyncio.to_thread(service.engine.settle)
    opened = service.engine.current_exchange
    if opened is not None and closed is not None and opened.exchange == closed.exchange:
        service.ask_again()
    service.announce_change()
    await asyncio.to_thread(service.engine.sweep)  # while the silos fetch their tasks


async def _drain(service: AggregatorService, lost: LostSilosFile) -> None:
    """Wait until every silo that was heard from recently, and is not lost, has said that it has the `finish` task."""
    until = time.monotonic() + DRAIN_SECONDS
    while time.monotonic() < until:
        now = time.monotonic()
        recent = {silo for silo, seen in service.last_seen.items() if now - seen < RECENT_SECONDS}
        if recent - lost.read().keys() <= service.finished:
            return
        await service.wait_for_change(TICK_SECONDS)
