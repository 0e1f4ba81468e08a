"""A connection that fails without a word of the system is explained nevertheless."""

from __future__ import annotations

from unittest.mock import Mock

import aiohttp

from fedsilo.hub.failures import explain_failure


def test_a_connection_that_is_reset_is_named() -> None:
    error = aiohttp.ClientConnectorError(Mock(), ConnectionResetError())
    told = explain_failure(error, "hub.example:443", None, private=False)
    assert told.startswith("hub.example:443: no connection (ConnectionResetError); let the firewall permit")
