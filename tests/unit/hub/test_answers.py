"""What a server answers before its answer is bounded, and nothing of an answer is kept or unpacked."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from unittest.mock import Mock

import aiohttp
import pytest

from fedsilo.hub.answers import MAX_INTERIM_ANSWERS, BoundedConnection, connector
from fedsilo.hub.https import HttpsClient
from fedsilo.wire import make_authority


def feed_answer(connection: BoundedConnection, code: int) -> None:
    connection.feed_data((SimpleNamespace(code=code), None))


@pytest.fixture
async def connection() -> BoundedConnection:
    found = BoundedConnection(loop=asyncio.get_running_loop())
    found.transport = Mock()
    return found


async def test_interim_answers_without_end_break_the_connection(connection: BoundedConnection) -> None:
    transport = connection.transport
    for _ in range(MAX_INTERIM_ANSWERS):
        feed_answer(connection, 100)
    assert connection.exception() is None
    for _ in range(1000):
        feed_answer(connection, 103)
    assert len(connection) == MAX_INTERIM_ANSWERS
    assert isinstance(connection.exception(), aiohttp.ClientPayloadError)
    assert isinstance(transport, Mock)
    transport.abort.assert_called_once()


async def test_interim_answers_before_each_of_many_answers_do_not(connection: BoundedConnection) -> None:
    for _ in range(2 * MAX_INTERIM_ANSWERS):
        feed_answer(connection, 100)
        feed_answer(connection, 200)
    assert connection.exception() is None
    assert len(connection) == 4 * MAX_INTERIM_ANSWERS


async def test_every_connection_has_the_limit() -> None:
    made = connector()
    assert isinstance(made._factory(), BoundedConnection)
    await made.close()


async def test_a_session_keeps_no_cookies_and_unpacks_nothing() -> None:
    ca = make_authority().cert_pem.decode()
    async with HttpsClient("https://a", ca, {}) as client:
        session = client._session
        assert session is not None
        assert isinstance(session.cookie_jar, aiohttp.DummyCookieJar)
        assert not session.auto_decompress
