"""A docstring says what it says of without its neighbours: its first sentence can be pasted alone into an issue."""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from inspect import cleandoc
from itertools import pairwise
from pathlib import Path

import pytest

from tests.paths import ROOT

PACKAGES = (
    "fedsilo",
    "operator",
    "aggregator",
    "silo-agent",
    "hack",
    "benchmarks",
    "attacks",
    "examples",
    "tests",
)

LEANS = re.compile(r"(The same|As|Of|Those|That of|It|They|Nothing|Likewise|None|See)\b")
"""Begins of a sentence that leans on the one before it, or says that there is no other."""

LEANS_BACK = re.compile(r"\blikewise\b|\bas above\b", re.IGNORECASE)

FEWEST_WORDS = 4
"""Words of a sentence that says something of its own."""

SENTENCE_END = re.compile(r"(?<=[.!?:;])\s")


@dataclass(frozen=True)
class SourceText:
    """What tests ask of a Python file of the project; its tree, of which all together are large, is not kept.

    :ivar docstrings: where each stands, as `file:line name`, and its text.
    :ivar names: of classes that it defines, and of what it imports.
    """

    docstrings: tuple[tuple[str, str], ...]
    names: frozenset[str]

    @classmethod
    def of(cls, path: Path) -> SourceText:
        module = ast.parse(path.read_text())
        docstrings = (
            (f"{path.relative_to(ROOT)}:{line} {name}", text) for line, name, text in docstrings_of(module)
        )
        return cls(tuple(docstrings), frozenset(names_known_to(module)))


@cache
def sources() -> tuple[SourceText, ...]:
    """Every Python file of the project."""
    return tuple(
        SourceText.of(path) for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))
    )


def docstrings() -> Iterator[tuple[str, str]]:
    """Where each docstring of the project stands, and its text."""
    return (found for source in sources() for found in source.docstrings)


def docstrings_of(module: ast.Module) -> Iterator[tuple[int, str, str]]:
    """Line, name and docstring of each definition, and of each constant and field that a text stands below."""
    for node in statements(module):
        if (
            isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            and (text := ast.get_docstring(node)) is not None
        ):
            yield getattr(node, "lineno", 1), getattr(node, "name", "module"), text
        if isinstance(node, ast.Module | ast.ClassDef):
            for statement, below in pairwise(node.body):
                match statement, below:
                    case (
                        ast.Assign(targets=[target, *_]) | ast.AnnAssign(target=target),
                        ast.Expr(value=ast.Constant(value=str(text))),
                    ):
                        yield statement.lineno, ast.unparse(target), cleandoc(text)


def statements(tree: ast.AST) -> Iterator[ast.AST]:
    """A module and all statements in it, without their expressions, which hold no docstring and are many more."""
    found = [tree]
    while found:
        node = found.pop()
        yield node
        for field in ("body", "orelse", "finalbody", "handlers", "cases"):
            found.extend(getattr(node, field, ()))


def first_sentence(text: str) -> str:
    """The part of a docstring that tools show alone."""
    return SENTENCE_END.split(text, maxsplit=1)[0]


def leaning(text: str) -> str | None:
    """What is wrong with a docstring, or None."""
    if begin := LEANS.match(text):
        return f"begins with {begin[0]!r}"
    if word := LEANS_BACK.search(text):
        return f"says {word[0]!r}"
    if len(first_sentence(text).split()) < FEWEST_WORDS:
        return f"has fewer than {FEWEST_WORDS} words in its first sentence"
    return None


@pytest.mark.parametrize("package", PACKAGES)
def test_a_docstring_makes_sense_alone(package: str) -> None:
    """An override that adds nothing to its base's docstring has none, and carries `override`."""
    wrong = [
        f"{where}: {fault}: {first_sentence(text)}"
        for where, text in docstrings()
        if where.startswith(f"{package}/") and (fault := leaning(text)) is not None
    ]
    assert not wrong, "\n".join(["write a sentence that says what this is", *wrong])


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("The same without weights.", "begins with 'The same'"),
        ("As of the method before, with weights.", "begins with 'As'"),
        ("It is.", "begins with 'It'"),
        ("Its weights over all silos.", None),
        ("Nothing: the half goes on.", "begins with 'Nothing'"),
        ("The model.", "has fewer than 4 words in its first sentence"),
        ("Weights of silos, likewise normalised.", "says 'likewise'"),
        ("The mean of all updates by samples.", None),
    ],
)
def test_what_leans_on_a_neighbour_is_found(text: str, fault: str | None) -> None:
    assert leaning(text) == fault


def test_what_stands_below_a_constant_is_its_docstring() -> None:
    module = ast.parse('A = 1\n"""Of one."""\nclass B:\n    c: int = 2\n    """As above."""\n')
    found = [(line, name, leaning(text)) for line, name, text in docstrings_of(module)]
    assert found == [(1, "A", "begins with 'Of'"), (4, "c", "begins with 'As'")]


def names_known_to(module: ast.Module) -> set[str]:
    """Names that a module defines or imports."""
    known: set[str] = set()
    for node in statements(module):
        match node:
            case ast.ClassDef(name=name):
                known.add(name)
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                known |= {(alias.asname or alias.name).partition(".")[0] for alias in names}
    return known


def test_errors_that_a_docstring_says_are_raised_exist() -> None:
    everywhere = set(dir(builtins)).union(*(source.names for source in sources()))
    unknown = [
        f"{where}: {name}"
        for where, text in docstrings()
        for name in re.findall(r"^\s*:raises (\w+):", text, re.MULTILINE)
        if name not in everywhere
    ]
    assert not unknown, "\n".join(["name an error that there is", *unknown])


def test_names_are_known_of_classes_and_imports_wherever_they_stand() -> None:
    text = "import a.b\ndef f():\n    try:\n        from c import D as E\n    except X:\n        class G: ..."
    assert names_known_to(ast.parse(text)) == {"a", "E", "G"}
