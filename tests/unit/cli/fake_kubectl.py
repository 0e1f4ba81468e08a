"""A kubectl that is a small program: it answers what a test has recorded, and records how it was called."""

from __future__ import annotations

import ast
import json
import marshal
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

SCRIPT = """#!{python} -IS
import marshal, os, sys
root = os.path.dirname(os.path.abspath(__file__))
given = sys.stdin.read() if "--filename=-" in sys.argv else ""
with open(root + "/calls", "a") as file:
    file.write(repr((sys.argv[1:], given)) + "\\n")
line = " ".join(word for word in sys.argv[1:] if not word.startswith("--request-timeout="))


def matches(pattern, parts):
    if parts is None:
        import re

        return re.fullmatch(pattern, line)
    first, *between, last = parts if len(parts) > 1 else (*parts, None)
    if last is None:
        return line == first
    if not line.startswith(first):
        return False
    place = len(first)
    for part in between:
        place = line.find(part, place)
        if place < 0:
            return False
        place += len(part)
    return line.endswith(last, place)


with open(root + "/answers", "rb") as file:
    recorded = marshal.load(file)
for number, (pattern, parts, answers) in enumerate(recorded):
    if matches(pattern, parts):
        counter = root + "/count-%d" % number
        count = int(open(counter).read()) if os.path.exists(counter) else 0
        with open(counter, "w") as file:
            file.write(str(count + 1))
        answer = answers[min(count, len(answers) - 1)]
        if "file" in answer:
            with open(answer["file"], "rb") as file:
                file.seek(answer["begin"])
                sys.stdout.buffer.write(file.read(answer["most"]))
        sys.stdout.write(answer.get("out", ""))
        sys.stdout.flush()
        sys.stderr.write(answer.get("err", ""))
        sys.exit(answer.get("code", 0))
sys.stderr.write("error: the test has no answer to: " + line + "\\n")
sys.exit(1)
"""
"""The false kubectl imports next to nothing: the tests start it some thousand times."""

SIMPLE_PATTERN = re.compile(r"(?:[\w ./=@:,-]|\.\*)*")


def literal_parts(pattern: str) -> list[str] | None:
    """What stands between the `.*` of a pattern that is otherwise to be taken as it is; None for any other."""
    return pattern.split(".*") if SIMPLE_PATTERN.fullmatch(pattern) else None


@dataclass(frozen=True)
class Call:
    """How kubectl was called, without the time-out that every call has."""

    words: Sequence[str]
    given: str

    @property
    def line(self) -> str:
        return " ".join(self.words)


class FakeKubectl:
    """Answers by regular expressions over the whole line of arguments; the first that matches counts."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.path = root / "kubectl"
        self.path.write_text(SCRIPT.format(python=sys.executable))
        self.path.chmod(0o755)
        self._answers: list[tuple[str, list[dict[str, Any]]]] = []
        self._save()

    def answer(self, pattern: str, *answers: dict[str, Any]) -> None:
        """What it says to such a line; several answers are given in turn, the last for ever."""
        self._answers.append((pattern, list(answers)))
        self._save()

    def answer_first(self, pattern: str, answer: dict[str, Any]) -> None:
        """Give an answer, before whatever was said so far, as `answer` does."""
        self._answers.insert(0, (pattern, [answer]))
        self._save()

    def json(self, pattern: str, *objects: Any) -> None:
        """Give an answer with objects in JSON, as `answer` does."""
        self.answer(pattern, *({"out": json.dumps(item)} for item in objects))

    def items(self, pattern: str, *objects: Any) -> None:
        """Give an answer with one list of objects, as `answer` does."""
        self.json(pattern, {"apiVersion": "v1", "kind": "List", "items": list(objects)})

    def refuse(self, pattern: str, said: str) -> None:
        """Give an answer that is a failure, as `answer` does."""
        self.answer(pattern, {"err": f"{said}\n", "code": 1})

    @property
    def calls(self) -> list[Call]:
        """Every call so far."""
        path = self.root / "calls"
        lines = path.read_text().splitlines() if path.exists() else []
        read = (ast.literal_eval(line) for line in lines)
        return [
            Call([word for word in words if not word.startswith("--request-timeout=")], given)
            for words, given in read
        ]

    def _save(self) -> None:
        recorded = [(pattern, literal_parts(pattern), answers) for pattern, answers in self._answers]
        (self.root / "answers").write_bytes(marshal.dumps(recorded))


NOT_FOUND = 'Error from server (NotFound): {resource} "{name}" not found'
FORBIDDEN_ANSWER = (
    'Error from server (Forbidden): {resource}.{group} is forbidden: User "eve" cannot {verb} resource "{resource}" '
    'in API group "{group}" {where}'
)


def forbidden(verb: str, resource: str, group: str = "fedsilo.io", namespace: str | None = None) -> str:
    """What kubectl says to a login that lacks a right."""
    where = f'in the namespace "{namespace}"' if namespace else "at the cluster scope"
    return FORBIDDEN_ANSWER.format(verb=verb, resource=resource, group=group, where=where)


@pytest.fixture
def kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeKubectl]:
    """The only kubectl on PATH."""
    root = tmp_path / "bin"
    root.mkdir()
    monkeypatch.setenv("PATH", str(root))
    monkeypatch.delenv("KUBECTL", raising=False)
    yield FakeKubectl(root)
