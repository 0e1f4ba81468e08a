"""One noun for one thing: no two classes of the programs share a name."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROGRAMS = ("fedsilo", "aggregator", "operator", "silo-agent")

SHARED_NAMES = {
    "Condition": {"fedsilo/api/common.py", "fedsilo/api/diagnosis.py"},
}
"""Names of two classes: meta/v1's Condition is one with the time of its transition and one without it yet."""


def test_every_class_has_a_name_of_its_own() -> None:
    found: dict[str, list[str]] = defaultdict(list)
    for program in PROGRAMS:
        for path in sorted((ROOT / program).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ClassDef):
                    found[node.name].append(path.relative_to(ROOT).as_posix())
    assert len(found) > 300
    assert {name: set(paths) for name, paths in found.items() if len(paths) > 1} == SHARED_NAMES
