"""Driving the engine: serving time, closed rounds, the end."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from aiohttp import web

from fedsilo.engine.record import told
from fedsilo.engine.round import RoundOutcome
from fedsilo.engine.status import Status, StatusSink
from fedsilo.logs import about
from fedsilo.process import TERMINATED
from fedsilo_aggregator.http import Service
from fedsilo_aggregator.uploads import FULL

log = logging.getLogger("fedsilo.aggregator")

TICK = 0.25
"""Seconds between looks at the deadline."""

DRAIN = 30.0
"""Seconds that silos get to fetch their last task."""

RECENT = 60.0
"""A silo that has been silent for so many seconds is not waited for at the end."""

CUT = 1.0
"""Seconds that requests get to end by themselves when the service ends; an upload that is cut goes on later."""


def server_context(certificate: Path, key: Path) -> ssl.SSLContext:
    """TLS 1.3 with the job's server certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_cert_chain(certificate, key)
    return context


@asynccontextmanager
async def leaving_on_sigterm() -> AsyncIterator[None]:
    """On SIGTERM, end the block in order and then the process, with 143.

    It is not waited for what runs in a thread, as a fold may for minutes, nor for the interpreter to tidy up, which
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
            os._exit(TERMINATED)


async def serve(
    service: Service, status: Status, sink: StatusSink, host: str, port: int, tls: ssl.SSLContext
) -> None:
    """Serve until the job has ended and its silos know."""
    runner = web.AppRunner(service.application(), access_log=None, read_bufsize=1 << 20, shutdown_timeout=CUT)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port, ssl_context=tls).start()
        log.info("serving job %s on %s:%d", service.federation.identity.name, host, port)
        await drive(service, status, sink)
    finally:
        await runner.cleanup()


async def drive(service: Service, status: Status, sink: StatusSink) -> None:
    """Run rounds to the end, then let every silo fetch its last task."""
    federation, message = service.federation, ""
    completed = len(federation.history())
    while not federation.ended:
        if federation.current is not None:
            about(round=federation.current.exchange.round)
        # Serving time is the time in which silos can answer: neither folding nor a full disk counts.
        before = time.monotonic()
        await service.changed(TICK)
        served = time.monotonic() - before
        try:
            await _advance(service, served)
            message = ""
        except OSError as error:
            if error.errno not in FULL:
                raise
            message = "the aggregator's disk is full; the round goes on when there is space"
            log.warning(message)
            await asyncio.sleep(1.0)
        # Also after trouble: a round may be on file while there is no space for the next.
        for record in federation.history()[completed:]:
            log.info(told(record, federation.rounds))
        completed = len(federation.history())
        sink.publish(status.document(message))
    if federation.failure is None:
        log.info("the job is complete; its silos fetch their last task")
    service.change()
    sink.publish(status.document(message))
    await _drain(service)


async def _advance(service: Service, seconds: float) -> None:
    """Let serving time go by, and settle the exchange when it is over."""
    current = service.federation.current
    if current is not None:
        current.wait(seconds)
        if current.round.outcome is RoundOutcome.OPEN:
            return
        await service.uploads.close()
    await asyncio.to_thread(service.federation.settle)
    service.change()


async def _drain(service: Service) -> None:
    until = time.monotonic() + DRAIN
    while time.monotonic() < until:
        now = time.monotonic()
        recent = {silo for silo, seen in service.seen.items() if now - seen < RECENT}
        if recent <= service.finished:
            # One more tick lets the last response leave before the socket is closed.
            await asyncio.sleep(TICK)
            return
        await service.changed(TICK)
