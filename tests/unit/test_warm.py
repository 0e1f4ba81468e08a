"""A program that begins warm is a process like one that begins cold."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests import warm
from tests.paths import ROOT

PROGRAM = "tests.unit.warm_program"
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), "WORD": "given"}


def process_facts(
    words: list[str], directory: Path, *, cold: bool, **options: Any
) -> tuple[int, dict[str, Any], str]:
    """Exit code of the program, what it says of itself, and what it says there is wrong."""
    with warm.start(
        PROGRAM,
        words,
        env=ENVIRONMENT,
        cold=cold,
        cwd=directory,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    ) as process:
        out, err = process.communicate()
    document = json.loads(out)
    if cold:
        assert document["path"].pop(0) == str(directory), "which the command itself takes out"
    assert document.pop("pid") == process.pid
    return process.returncode, document, err


@pytest.mark.parametrize("options", [{}, {"start_new_session": True}])
def test_it_has_what_a_cold_one_has(tmp_path: Path, options: dict[str, Any]) -> None:
    first, other = (process_facts(["2", "a b"], tmp_path, cold=cold, **options) for cold in (False, True))
    assert first == other
    code, document, err = first
    assert (code, err) == (2, "two\n")
    assert document["directory"] == str(tmp_path) and document["word"] == "given"
    assert document["line"][1:] == ["-m", PROGRAM, "2", "a b"]
    assert document["descriptors"] == 3 and document["threads"] == 1
    assert document["parent"] == os.getpid()
    assert document["leads a session"] == bool(options)


def test_a_signal_reaches_it_and_its_end_is_noticed(tmp_path: Path) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        with warm.start(PROGRAM, ["wait"], env=ENVIRONMENT, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None and process.stdout.readline() == "waiting\n"
            assert process.poll() is None
            process.send_signal(number)
            assert process.wait(60) == (1 if number == signal.SIGINT else -number)


@pytest.mark.parametrize(
    "changed",
    [
        {"PYTHONPATH": "elsewhere"},
        {"PYTHONPATH": "CUSTOMISED"},
        {"OMP_NUM_THREADS": "2"},
        {"PYTHONHASHSEED": "0"},
    ],
)
def test_what_is_read_at_the_start_begins_cold(tmp_path: Path, changed: dict[str, str]) -> None:
    assert warm.is_warmable(ENVIRONMENT | {"PYTHONPATH": str(tmp_path)})
    (tmp_path / "sitecustomize.py").touch()
    changed = {name: value.replace("CUSTOMISED", str(tmp_path)) for name, value in changed.items()}
    assert not warm.is_warmable(ENVIRONMENT | changed)
