"""What runs methods names none of them: a built-in one has no privilege over a third party's."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedsilo.methods import registry
from tests.paths import ROOT

FOLDERS = (
    "fedsilo/engine",
    "fedsilo/silo",
    "fedsilo/local",
    "fedsilo/simulation",
    "aggregator",
    "silo-agent",
)
FILES = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]


def mentioned_names(path: Path) -> Iterator[str]:
    """String constants and names of imported modules; documentation may give examples.

    Python's own modules are no methods, nor are those of `fedsilo.data`, of which one is called statistics.
    """
    tree = ast.parse(path.read_text())
    documentation = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documentation:
            yield node.value
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name not in sys.stdlib_module_names)
        elif isinstance(node, ast.ImportFrom) and not f"{node.module}.".startswith("fedsilo.data."):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def builtin_names() -> set[str]:
    """Names of the methods of fedsilo, as jobs write them, and as modules are called; of one that is called as a
    package is, the whole module."""
    names = {spelling for name in registry.names() for spelling in (name, name.replace("-", "_"))}
    return {f"methods.{name}" if name == "local" else name for name in names}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_method_is_named_outside_its_package(path: Path) -> None:
    found = [text for text in mentioned_names(path) for name in builtin_names() if names(text, name)]
    assert not found


def names(text: str, method: str) -> bool:
    """Whether the method is one of the text's words."""
    return re.search(rf"(?<![a-z0-9_]){re.escape(method)}(?![a-z0-9_])", text.lower()) is not None


def test_a_mention_would_be_found(tmp_path: Path) -> None:
    path = tmp_path / "wrong.py"
    path.write_text('"""fedavg"""\nfrom fedsilo.methods import creff\nif method == "fedconcat": pass\n')
    assert list(mentioned_names(path)) == ["fedsilo.methods.creff", "fedconcat"]
    assert all(map(names, mentioned_names(path), ("creff", "fedconcat")))
    assert not names("collections.abc.Mapping", "map")
