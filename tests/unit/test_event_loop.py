"""A loop that has mixed up connections ends its process, with a line for people."""

from __future__ import annotations

import pytest

from fedsilo.errors import FedsiloError
from fedsilo.event_loop import run_event_loop


async def failing(text: str) -> None:
    raise RuntimeError(text)


def test_a_loop_that_mixes_up_connections_says_so_in_a_line() -> None:
    mixed_up = "File descriptor 13 is used by transport <TCPTransport closed=False reading=True 0x5563>"
    with pytest.raises(FedsiloError, match=r"has mixed up two connections .* start this process again"):
        run_event_loop(failing(mixed_up))


def test_other_errors_of_the_interpreter_are_none_of_the_loops() -> None:
    with pytest.raises(RuntimeError, match="something else"):
        run_event_loop(failing("something else"))
