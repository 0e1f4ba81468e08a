"""What the event loop says of errors that no code of ours can catch."""

from __future__ import annotations

import asyncio

import pytest

from fedsilo.event_loop import BROKEN_TLS, report_loop_error


def test_a_connection_that_breaks_under_tls_is_no_traceback(caplog: pytest.LogCaptureFixture) -> None:
    loop = asyncio.new_event_loop()
    try:
        report_loop_error(loop, {"message": BROKEN_TLS, "exception": RuntimeError("the handler is closed")})
        assert caplog.text == ""
        report_loop_error(loop, {"message": "a defect", "exception": RuntimeError("of ours")})
        assert "of ours" in caplog.text
    finally:
        loop.close()
