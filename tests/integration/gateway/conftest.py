"""A gateway per test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fedsilo_operator.gateway.limits import Limits
from tests.integration.gateway.place import Place


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    limits = Limits(open_requests=3, requests_per_second=1000, burst=1000, body_bytes=256 << 20)
    async with Place(tmp_path, limits).running() as running:
        yield running
