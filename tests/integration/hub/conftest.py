"""Commands of an institution run on asyncio's event loop, guards on uvloop's: every test here runs on both."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import uvloop


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The event loops that every test runs on, which differ in what they raise when TLS fails."""
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
