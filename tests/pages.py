"""The pages as a test reads them: fenced blocks, shell commands, and who runs these.

A test says with `runs` which commands of a page it runs, takes the `terminal`, and types them there: the terminal
knows no other command, and fails the test unless each was typed. `tests/unit/test_pages.py` fails when nobody runs a
command.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.paths import ROOT

SHELL = "sh"
"""What a block of commands is marked with."""

WRITTEN_FOLDERS = ("build", "runs")
"""Folders of the checkout that commands write, of which no page is the project's."""

runs = pytest.mark.runs
"""The mark `runs(page, *commands)` says that the test runs these commands of the page; without any, all that nobody
else is named for."""


def pages() -> list[Path]:
    """Every page of the project."""
    folders = [
        path
        for path in ROOT.iterdir()
        if path.is_dir() and path.name[0] != "." and path.name not in WRITTEN_FOLDERS
    ]
    return [
        *ROOT.glob("*.md"),
        *(page for folder in sorted(folders) for page in sorted(folder.rglob("*.md"))),
    ]


def name_of(page: Path) -> str:
    """A page as tests call it: its path in the project."""
    return str(page.relative_to(ROOT))


def fences(page: str) -> list[tuple[str, str]]:
    """What each fenced block of a page is marked with, and its text."""
    return re.findall(r"^```(\w*)\n(.*?)^```$", (ROOT / page).read_text(), flags=re.MULTILINE | re.DOTALL)


def blocks(page: str, language: str) -> list[str]:
    """Fenced blocks of one language."""
    return [text for tag, text in fences(page) if tag == language]


def commands(page: str) -> list[str]:
    """The shell commands of a page in their order, each on one line and without its comment."""
    text = "".join(blocks(page, SHELL))
    lines = re.sub(r" *\\\n *", " ", text).splitlines()
    return [command for line in lines if (command := re.sub(r"(^|\s+)#.*$", "", line).strip())]


def claimed_commands(page: str, *lines: str) -> Sequence[str]:
    """The commands that `runs(page, *lines)` means."""
    if lines:
        return lines
    return [line for line in commands(page) if line not in COMMANDS_ELSEWHERE.get(page, {})]


@dataclass(frozen=True)
class Replacement:
    """What runs in place of a command that a test cannot type.

    :param by: the line of `.ci/run` that does.
    """

    why: str
    by: str


_ENDLESS_TESTS = "tests that run the tests would not end"

COMMANDS_ELSEWHERE: Mapping[str, Mapping[str, Replacement]] = {
    "README.md": {"make test": Replacement(_ENDLESS_TESTS, "make test")},
    "CONTRIBUTING.md": {
        "make setup": Replacement(
            "it installs what runs the tests; on a clean clone `make lint` begins with it",
            "make lint",
        ),
        "make test": Replacement(_ENDLESS_TESTS, "make test"),
        "make test-all": Replacement(
            "`make test` and what it leaves out, one after the other", "make test-thorough"
        ),
        "make test-cluster": Replacement(_ENDLESS_TESTS, "make test-cluster"),
        "make lint": Replacement("mypy alone takes a minute", "make lint"),
    },
    "docs/cluster.md": {
        "make cluster-down": Replacement(
            "other tests need the cluster; this comes after them", "trap 'make cluster-down' EXIT"
        ),
    },
}
"""Page -> command -> why no test types it, and what runs the same thing."""
