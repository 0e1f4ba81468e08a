"""What the pages say exists: links, commands, targets, errors, the quoted manifest."""

from __future__ import annotations

import argparse
import ast
import importlib
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import yaml

from fedsilo import errors
from fedsilo.cli.commands import COMMANDS
from fedsilo.errors import FedsiloError
from tests.pages import blocks, commands, name_of, pages
from tests.paths import ROOT

CLASSES_ELSEWHERE = (
    "fedsilo.hub.failures",
    "fedsilo.data.numbering",
    "fedsilo.local.child_processes",
    "fedsilo.api.faults",
    "fedsilo_agent.guard.audit",
    "fedsilo_agent.guard.drops",
    "fedsilo_agent.trainer.ranks",
    "fedsilo_operator.cluster.interface",
    "fedsilo_operator.rejections",
    "fedsilo_operator.runtime.election",
)
"""Modules with error classes of their own; a class of any other is found because it is imported by these."""

CODE_FOLDERS = (
    *("fedsilo", "operator", "aggregator", "silo-agent"),
    *("charts", "hack", "tests", "benchmarks", "attacks", "examples"),
)
"""Folders of Python files, which pages and packages name."""

PAGES = pages()
each_page = pytest.mark.parametrize("page", PAGES, ids=name_of)


def prose(page: Path) -> str:
    """A page without its fenced blocks."""
    return re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """What `#...` may name on a page, as GitHub makes it from headings."""
    headings = re.findall(r"^#+ (.+)$", prose(page), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@each_page
def test_relative_links_resolve(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        linked = page.parent / name if name else page
        assert linked.exists(), f"{target} leads nowhere"
        if anchor:
            assert anchor in anchors(linked), f"{target}: there is no such heading"


@each_page
def test_modules_that_a_page_names_exist(page: Path) -> None:
    for name in re.findall(r"`((?:[\w.-]+/)+\w+\.py)`", prose(page)):
        assert any(f"/{path}".endswith(f"/{name}") for path in module_paths()), f"{name} is nowhere"


@cache
def module_paths() -> tuple[str, ...]:
    """Every Python file of the project, from its folder."""
    return tuple(
        path.relative_to(ROOT).as_posix() for folder in CODE_FOLDERS for path in (ROOT / folder).rglob("*.py")
    )


def modules_named_by_packages() -> Iterator[tuple[str, str]]:
    """Package and word in backticks of each docstring that says what the package's modules are for."""
    for path in module_paths():
        if path.endswith("/__init__.py") and not path.startswith(("fedsilo/methods/", "tests/", "hack/")):
            text = ast.get_docstring(ast.parse((ROOT / path).read_text())) or ""
            yield from ((path, word) for word in re.findall(r"`([a-z]\w*)`", text))


def test_modules_that_a_package_names_exist() -> None:
    names = {part.removesuffix(".py") for path in module_paths() for part in path.split("/")}
    assert [(path, word) for path, word in modules_named_by_packages() if word not in names] == []


def options(command: str) -> argparse.ArgumentParser:
    """The parser of a sub-command."""
    parser = argparse.ArgumentParser(exit_on_error=False, allow_abbrev=False)
    importlib.import_module(f"fedsilo.cli.{command.replace('-', '_')}").add_arguments(parser)
    return parser


@each_page
def test_commands_shown_exist_and_take_these_arguments(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    for program, *arguments in map(shlex.split, commands(name_of(page))):
        if program == "make":
            named = {argument for argument in arguments if "=" not in argument}
            assert named <= targets, f"make {arguments}"
        elif program == "fedsilo":
            assert arguments[0] in COMMANDS, f"fedsilo {arguments}"
            options(arguments[0]).parse_args(arguments[1:])


def test_the_readme_begins_with_the_two_commands() -> None:
    first, *_ = blocks("README.md", "sh")
    assert [line.split("#")[0].split() for line in first.splitlines()] == [["make", "demo"], ["make", "test"]]


def test_the_readme_quotes_the_quickstart() -> None:
    quickstart = (ROOT / "examples" / "quickstart.yaml").read_text()
    quoted = blocks("README.md", "yaml")
    assert [yaml.safe_load(text)["kind"] for text in quoted] == ["Silo", "FederatedJob"]
    for text in quoted:
        assert f"---\n{text}" in quickstart


def error_classes(root: type[FedsiloError] = FedsiloError) -> Iterator[type[FedsiloError]]:
    """The tree of errors in fedsilo's own modules, the root first."""
    if root.__module__.startswith("fedsilo"):
        yield root
    for child in root.__subclasses__():
        yield from error_classes(child)


def test_every_error_is_in_the_table_with_its_exit_code_and_reason() -> None:
    for module in CLASSES_ELSEWHERE:
        importlib.import_module(module)
    rows = re.findall(
        r"^\| `(\w+)` \| (\d+) \| ([^|]+) \|", (ROOT / "docs/errors.md").read_text(), re.MULTILINE
    )
    table = {name: (int(code), reason) for name, code, reason in rows}
    found = {error.__name__: error for error in error_classes()}
    assert set(table) == set(found)
    for name, error in found.items():
        code, reason = table[name]
        assert code == error.exit_code, name
        # Some take the reason of what they report.
        assert reason.split(",")[0] == error.reason or reason == "the trainer's own", name


def test_the_tree_of_errors_is_drawn_as_it_is() -> None:
    assert errors.__doc__ is not None
    drawn = re.findall(r"^([ │├└─]*)(\w+) +(?:exit )?(\d)", blocks("docs/errors.md", "text")[0], re.MULTILINE)
    in_code = dict(re.findall(r"[├└]── (\w+) +(\d)", errors.__doc__))
    assert {name: code for indent, name, code in drawn if indent} == in_code
    for name, code in in_code.items():
        assert getattr(errors, name).exit_code == int(code), name
    parent: list[str] = []
    for indent, name, _ in drawn:
        parent[len(indent) // 4 :] = [name]
        if len(parent) > 1:
            assert getattr(errors, name).__bases__[0] is getattr(errors, parent[-2])
