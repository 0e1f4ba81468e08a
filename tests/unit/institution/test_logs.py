"""Logs of guards and trainers have a bounded size, and whoever writes one goes on."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from fedsilo.institution import executor as module
from fedsilo.institution import logs
from fedsilo.institution.executor import LOGS_SECONDS, Executor
from fedsilo.institution.logs import bound_logs
from fedsilo.institution.silo_file import WatchedSilo
from tests.unit.institution.parts import KEY, MEMBER, agent, directory, mirror_of


@pytest.fixture(autouse=True)
def small_log_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "MAX_LOG_BYTES", 100)
    monkeypatch.setattr(logs, "MAX_LOGS_BYTES", 1000)


def test_a_log_that_is_too_long_begins_anew_under_its_writer(tmp_path: Path) -> None:
    path = tmp_path / "job-trainer.log"
    with path.open("ab", buffering=0) as writer:
        for number in range(30):
            writer.write(b"line %4d\n" % number)
            bound_logs(tmp_path, lambda name: True)
            assert path.stat().st_size <= 100
        assert path.read_bytes() == b"".join(b"line %4d\n" % number for number in range(22, 30))
    before = tmp_path / "job-trainer.log.1"
    assert before.read_bytes().endswith(b"line   21\n")
    assert before.stat().st_size == 100
    assert sorted(tmp_path.iterdir()) == [path, before]


def test_a_flood_between_two_looks_keeps_its_end(tmp_path: Path) -> None:
    path = tmp_path / "job-guard.log"
    path.write_bytes(b"x" * 5000 + b"the end")
    bound_logs(tmp_path, lambda name: True)
    assert path.read_bytes() == b""
    assert (tmp_path / "job-guard.log.1").read_bytes() == b"x" * 93 + b"the end"


def test_beyond_all_room_the_oldest_that_nobody_writes_go(tmp_path: Path) -> None:
    for number in range(15):
        path = tmp_path / f"job{number:02}-guard.log"
        path.write_bytes(bytes(100))
        os.utime(path, (number, number))
    bound_logs(tmp_path, lambda name: name.startswith("job00-"))
    left = [path.name[:5] for path in sorted(tmp_path.iterdir())]
    assert left == ["job00", *(f"job{number:02}" for number in range(6, 15))]


def test_a_link_among_the_logs_is_left_alone(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_bytes(bytes(5000))
    (tmp_path / "job-guard.log").symlink_to(elsewhere)
    bound_logs(tmp_path, lambda name: False)
    assert elsewhere.stat().st_size == 5000


def test_a_silo_that_serves_bounds_its_logs_each_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(module, "bound_logs", lambda path, in_use: asked.append((path, in_use)))
    place, now = directory(tmp_path / "silo"), [0.0]
    watched = WatchedSilo(place, MEMBER, KEY.verify_key.to_text())
    found = Executor(place, watched, KEY, lambda: now[0])
    found.follow(mirror_of(agent(suspend=True)))
    for _ in range(3):
        found.step()
    now[0] += LOGS_SECONDS
    found.step()
    assert [path for path, _ in asked] == [place.logs, place.logs]
    (part,) = found.parts.values()
    assert asked[-1][1](f"{part.label}-trainer.log.1")
    assert not asked[-1][1]("another-12345678-trainer.log")
