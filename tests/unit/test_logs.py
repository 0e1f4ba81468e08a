"""Logs have one JSON object per line, about what is known, and are readable by people all the same."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from fedsilo import logs
from fedsilo.logs import JsonLines, as_text, concerning, set_log_facts, start_logging

log = logging.getLogger("fedsilo.test")


@pytest.fixture(autouse=True)
def fresh_logging() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level, facts = list(root.handlers), root.level, dict(logs._process)
    logs._process.clear()
    yield
    logs._process.clear()
    logs._process.update(facts)
    root.handlers, root.level = handlers, level


def line(message: str, *args: object) -> dict[str, Any]:
    record = log.makeRecord(log.name, logging.INFO, __file__, 1, message, args, None)
    text = JsonLines().format(record)
    assert "\n" not in text
    content: dict[str, Any] = json.loads(text)
    return content


def test_a_line_says_when_how_bad_who_and_what(capsys: pytest.CaptureFixture[str]) -> None:
    logging.getLogger().handlers = []
    start_logging()
    start_logging("json")
    log.warning("a %s\nb", "ß")
    written = capsys.readouterr().err
    assert written.count("\n") == 1
    content = json.loads(written)
    assert content.pop("time")[10:] > "T00:00:00.000Z"
    assert content == {"level": "WARNING", "logger": "fedsilo.test", "message": "a ß\nb"}


def test_text_is_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    logging.getLogger().handlers = []
    start_logging()
    set_log_facts(job="digits")
    log.info("hello")
    assert capsys.readouterr().err.endswith(" INFO hello\n")


def test_facts_are_those_of_the_process_and_of_the_task() -> None:
    set_log_facts(namespace="federation", job="digits", round=3)
    assert line("a") | {"time": ""} == {
        "time": "",
        "level": "INFO",
        "logger": "fedsilo.test",
        "message": "a",
        "namespace": "federation",
        "job": "digits",
        "round": 3,
    }
    with concerning(silo="north", round=4, secret="key"):
        found = line("b")
        assert (found["job"], found["silo"], found["round"]) == ("digits", "north", 4)
        assert "secret" not in found, "only what is meant for logs"
    assert "silo" not in line("c")
    set_log_facts(round=None)
    assert "round" not in line("d")


async def test_tasks_do_not_mix_their_facts() -> None:
    async def work(silo: str) -> list[str]:
        with concerning(silo=silo):
            found = []
            for _ in range(3):
                await asyncio.sleep(0)
                found += [line("x")["silo"], await asyncio.to_thread(lambda: line("y")["silo"])]
            return found

    assert [*await asyncio.gather(work("north"), work("south"))] == [["north"] * 6, ["south"] * 6]


def test_an_exception_keeps_its_traceback() -> None:
    try:
        raise ValueError("wrong")
    except ValueError as error:
        found = (ValueError, error, error.__traceback__)
    record = log.makeRecord(log.name, logging.ERROR, __file__, 1, "failed", (), found)
    text = JsonLines().format(record)
    assert json.loads(text)["error"].endswith("ValueError: wrong")
    shown = as_text(text).splitlines()
    assert shown[0].endswith("Z ERROR failed")
    assert shown[-1] == "    ValueError: wrong"


@pytest.mark.parametrize("text", ["", "hello", "{", "[1]", '{"time": 1}', '"time"', "[" * 100_000])
def test_other_lines_stay_as_they_are(text: str) -> None:
    assert as_text(text) == text


def test_nobody_forges_a_line() -> None:
    text = json.dumps({"time": "T", "level": "INFO", "message": "a\n2026 ERROR b\r2026 ERROR c"})
    assert as_text(text) == "T INFO a\n    2026 ERROR b\n    2026 ERROR c"
