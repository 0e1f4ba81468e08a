"""What the event loop says of errors that no code of ours can catch."""

from __future__ import annotations

import asyncio

import pytest

from fedsilo.errors import FedsiloError
from fedsilo.http.event_loop import BROKEN_TLS, report_loop_error, run_event_loop


def test_a_connection_that_breaks_under_tls_is_no_traceback(caplog: pytest.LogCaptureFixture) -> None:
    loop = asyncio.new_event_loop()
    try:
        report_loop_error(loop, {"message": BROKEN_TLS, "exception": RuntimeError("the handler is closed")})
        assert caplog.text == ""
        report_loop_error(loop, {"message": "a defect", "exception": RuntimeError("of ours")})
        assert "of ours" in caplog.text
    finally:
        loop.close()


async def failing(text: str) -> None:
    raise RuntimeError(text)


def test_a_loop_that_mixes_up_connections_says_so_in_a_line() -> None:
    mixed_up = "File descriptor 13 is used by transport <TCPTransport closed=False reading=True 0x5563>"
    with pytest.raises(FedsiloError, match=r"has mixed up two connections .* start this process again"):
        run_event_loop(failing(mixed_up))


def test_other_errors_of_the_interpreter_are_none_of_the_loops() -> None:
    with pytest.raises(RuntimeError, match="something else"):
        run_event_loop(failing("something else"))
