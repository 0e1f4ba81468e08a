"""Our processes are recognised by their environment, and nobody else's are."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from hack.cluster import processes
from hack.cluster.errors import ClusterError

SLEEP = [sys.executable, "-c", "import time; time.sleep(60)"]


def test_the_owner_is_read_from_the_environment() -> None:
    assert processes.owner_in(b"A=1\0FEDSILO_CLUSTER=node/etcd\0B=2\0") == "node/etcd"
    assert processes.owner_in(b"XFEDSILO_CLUSTER=node/etcd\0") is None
    assert processes.owner_in(b"") is None


def test_a_command_with_parentheses_and_blanks_does_not_shift_the_fields() -> None:
    fields = " ".join(str(number) for number in range(4, 30))
    session, started = processes.session_and_start(f"17 (a) (b c) S {fields}")
    assert session == 6
    assert started == 22 / os.sysconf("SC_CLK_TCK")


def test_a_process_is_found_by_its_owner_and_killed(tmp_path: Path) -> None:
    mine = f"test-{os.getpid()}"
    processes.start(f"{mine}/one", SLEEP, tmp_path / "one.log")
    processes.start(f"{mine}-other/two", SLEEP, tmp_path / "two.log")
    try:
        (one,) = processes.running(mine)
        assert (one.owner, one.leader) == (f"{mine}/one", True)
        assert one.seconds < 60
        assert processes.end(mine) == 1
        assert processes.running(mine) == []
        assert len(processes.running(f"{mine}-other")) == 1
    finally:
        processes.end(mine)
        processes.end(f"{mine}-other")


def test_waiting_for_a_process_that_has_ended_shows_the_end_of_its_log(tmp_path: Path) -> None:
    owner, log = f"test-{os.getpid()}/short", tmp_path / "short.log"
    processes.start(owner, [sys.executable, "-c", "print('no such flag')"], log)
    with pytest.raises(ClusterError, match=r"has ended while waiting for the sea[\s\S]*no such flag"):
        processes.wait_until(lambda: False, "the sea", 30, {owner: log})
    processes.end(owner)
