"""Every command of every page is run by a test, or something is named that runs the same."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pages import (
    COMMANDS_ELSEWHERE,
    Replacement,
    blocks,
    claimed_commands,
    commands,
    fences,
    name_of,
    pages,
)
from tests.paths import ROOT

PAGES = [name_of(page) for page in pages()]
LANGUAGES = {"sh", "text", "yaml", "python", "toml", "dockerfile"}
EXCEPTIONS = [
    (page, command, item) for page in COMMANDS_ELSEWHERE for command, item in COMMANDS_ELSEWHERE[page].items()
]


@pytest.mark.parametrize("page", PAGES)
def test_every_block_says_what_it_is(page: str) -> None:
    """Or commands could stand in a block where nobody looks for them."""
    assert {tag for tag, _ in fences(page)} <= LANGUAGES
    text = (ROOT / page).read_text()
    assert len(re.findall("^ *(?:```|~~~)", text, re.MULTILINE)) == 2 * len(fences(page)), (
        "an indented or open block"
    )


def test_commands_are_in_blocks_of_commands() -> None:
    programs = {command.split()[0] for page in PAGES for command in commands(page)} | {"docker", "fedsilo"}
    for page in PAGES:
        for text in blocks(page, "text"):
            for line in text.splitlines():
                assert line.removeprefix("$").split()[:1] not in [[program] for program in programs], line


THOROUGH = "pytest.mark.thorough"
"""The one other mark of a test that types commands: `make test-all` runs it, and so does `.ci/run`."""


def typed_commands(path: Path) -> Iterator[tuple[str, str]]:
    """Page and command of all that the tests of a file type in their terminals."""
    module = ast.parse(path.read_text())
    for function in ast.walk(module):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        marks = [ast.unparse(mark).partition("(")[0] for mark in function.decorator_list]
        if "runs" not in marks:
            continue
        everywhere = [ast.unparse(line) for line in module.body if isinstance(line, ast.Assign)]
        assert set(marks) <= {"runs", THOROUGH} and "skip" not in ast.unparse(function), (
            f"{function.name} may be skipped"
        )
        assert not any(line.startswith("pytestmark") and "skip" in line for line in everywhere), path
        assert "terminal" in [argument.arg for argument in function.args.args], function.name
        assert function.name.startswith("test_"), function.name
        for mark in function.decorator_list:
            if ast.unparse(mark) == THOROUGH:
                continue
            assert isinstance(mark, ast.Call) and not mark.keywords
            page, *lines = (ast.literal_eval(argument) for argument in mark.args)
            yield from ((page, line) for line in claimed_commands(page, *lines))


def test_every_command_is_run_and_whoever_runs_one_finds_it_on_the_page() -> None:
    shown = {(page, command) for page in PAGES for command in commands(page)}
    run = {pair for path in sorted((ROOT / "tests").rglob("test_*.py")) for pair in typed_commands(path)}
    excepted = {(page, command) for page, command, _ in EXCEPTIONS}
    for found, what in (
        (shown - run - excepted, "no test runs"),
        ((run | excepted) - shown, "no page has any more"),
        (run & excepted, "these are run, and need no exception:"),
    ):
        assert not found, "\n".join([what, *(f"{page}: {command}" for page, command in sorted(found))])


@pytest.mark.parametrize(
    ("command", "instead"),
    [(command, item) for _, command, item in EXCEPTIONS],
    ids=lambda value: str(value)[:40],
)
def test_what_is_named_in_place_of_a_command_is_there(command: str, instead: Replacement) -> None:
    assert instead.by in (ROOT / ".ci" / "run").read_text().splitlines()
