from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from fedsilo.errors import Problem
from fedsilo.wire import STATUS, problem_document
from tests.paths import ROOT


def calls() -> Iterator[tuple[str, ast.expr]]:
    """Every call of `Problem` in the source: where, and its first argument."""
    for folder in ("fedsilo", "aggregator", "silo-agent", "operator"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if (
                    isinstance(node, ast.Call)
                    and ast.unparse(node.func).split(".")[-1] == "Problem"
                    and node.args
                ):
                    yield f"{path.relative_to(ROOT)}:{node.lineno}", node.args[0]


def test_every_code_that_is_raised_has_a_status() -> None:
    literals = [(where, code.value) for where, code in calls() if isinstance(code, ast.Constant)]
    assert len(literals) > 20
    assert [(where, code) for where, code in literals if code not in STATUS] == []


def test_codes_are_kebab_case_and_documented() -> None:
    text = (ROOT / "docs" / "wire.md").read_text()
    for code, status in STATUS.items():
        assert re.fullmatch(r"[a-z]+(-[a-z]+)*", code)
        assert f"| `{code}` | {status} |" in text


def test_a_problem_document_follows_rfc_9457() -> None:
    assert problem_document(Problem("wrong-round", "round is 2; must be 3")) == {
        "type": "urn:fedsilo:problem:wrong-round",
        "title": "Wrong round",
        "status": 409,
        "detail": "round is 2; must be 3",
    }
