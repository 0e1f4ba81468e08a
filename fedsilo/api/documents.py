"""YAML as `kubectl` reads it, with every fault located.

`kubectl` turns YAML into JSON before anything else. This reader does so too, and one file means the same to
both: no dates, no base-60 numbers, `1e-5` is a number, keys are strings, and a key that is given twice is a
fault instead of a silent loss.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from yaml.constructor import ConstructorError

from fedsilo.api.faults import ABSENT, Fault

_MAX_BYTES = 4 * 1024 * 1024
_MAX_VALUES = 1_000_000
_TAG = "tag:yaml.org,2002:"
_JSON_TAGS = ("null", "bool", "int", "float", "str", "seq", "map")


class _JsonLoader(yaml.SafeLoader):
    """Constructs only what JSON has; faults that leave the rest readable are collected."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.collected: list[tuple[yaml.Mark, Any, str, str]] = []

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag == f"{_TAG}merge":
                continue
            if key.tag != f"{_TAG}str":
                self._collect(key, "is not a string as a key", "put the key in quotes")
            elif key.value in seen:
                self._collect(key, "is given twice in one mapping", "keep one")
            seen.add(key.value)
        return {str(key): value for key, value in super().construct_mapping(node, deep=deep).items()}

    def construct_text(self, node: yaml.ScalarNode) -> str:
        # JSON escapes characters beyond the basic plane in two halves, which YAML would leave apart.
        text: str = node.value
        return text.encode("utf-16", "surrogatepass").decode("utf-16")

    def _collect(self, node: yaml.ScalarNode, problem: str, remedy: str) -> None:
        self.collected.append((node.start_mark, node.value, problem, remedy))


_JsonLoader.yaml_constructors = {
    tag: yaml.SafeLoader.yaml_constructors[tag] for tag in (*(f"{_TAG}{name}" for name in _JSON_TAGS), None)
}
_JsonLoader.add_constructor(f"{_TAG}str", _JsonLoader.construct_text)
_JsonLoader.yaml_implicit_resolvers = {
    first: [
        (tag, pattern) for tag, pattern in resolvers if tag.removeprefix(_TAG) in ("null", "bool", "merge")
    ]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_JsonLoader.add_implicit_resolver(
    f"{_TAG}int",
    re.compile(r"[-+]?(0b[01_]+|0x[0-9a-fA-F_]+|0[0-7_]*|[1-9][0-9_]*)$"),
    list("-+0123456789"),
)
_JsonLoader.add_implicit_resolver(
    f"{_TAG}float",
    re.compile(
        r"[-+]?(([0-9][0-9_]*(\.[0-9_]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?|\.(inf|Inf|INF))$|\.(nan|NaN|NAN)$"
    ),
    list("-+.0123456789"),
)


class _TooLarge(yaml.YAMLError):
    """A document that aliases blow up."""


@dataclass(frozen=True)
class Document:
    """One document of a file.

    :param number: position in the file from 1, empty documents included.
    :param content: its mapping, as JSON would have it.
    """

    file: str
    number: int
    content: dict[str, Any]

    @property
    def kind(self) -> str:
        """The kind that it states; empty when it states none."""
        kind = self.content.get("kind")
        return kind if isinstance(kind, str) else ""

    def __str__(self) -> str:
        metadata = self.content.get("metadata")
        name = metadata.get("name") if isinstance(metadata, dict) else None
        title = (
            f"{self.kind} {name}" if self.kind and isinstance(name, str) and len(name) <= 63 else self.kind
        )
        return f"document {self.number} ({title[:120]})" if title else f"document {self.number}"

    def fault(self, path: str, value: Any, problem: str, remedy: str) -> Fault:
        """A fault in this document."""
        return Fault(self.file, str(self), path, value, problem, remedy)


@dataclass(frozen=True)
class Contents:
    """What a file holds.

    :param complete: False when a fault hides the rest of the file, so that nothing can be said to be missing.
    """

    documents: tuple[Document, ...]
    faults: tuple[Fault, ...]
    complete: bool = True


def read_documents(path: Path) -> Contents:
    """All mappings of a YAML or JSON file, up to the first syntax error; empty documents are passed over."""
    file = str(path)
    text, fault = _text_of(path)
    if fault:
        return Contents((), (fault,), complete=False)
    documents: list[Document] = []
    faults: list[Fault] = []
    number = 0
    try:
        for number, (content, collected) in enumerate(_parsed(text), start=1):
            if isinstance(content, dict):
                document = Document(file, number, content)
                documents.append(document)
                faults += [document.fault(_place(mark), *rest) for mark, *rest in collected]
            elif content is not None:
                remedy = "write a mapping with apiVersion, kind, metadata and spec"
                faults.append(Fault(file, f"document {number}", "", content, "is not a mapping", remedy))
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        faults.append(_syntax_fault(file, f"document {number + 1}", error))
        return Contents(tuple(documents), tuple(faults), complete=False)
    return Contents(tuple(documents), tuple(faults))


def _text_of(path: Path) -> tuple[str, Fault | None]:
    def fault(problem: str, remedy: str) -> tuple[str, Fault]:
        return "", Fault(str(path), "", "", ABSENT, problem, remedy)

    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return fault("does not exist", "check the name of the file")
    except OSError as error:
        return fault(f"cannot be read ({error.strerror})", "name a file that can be read")
    if len(raw) > _MAX_BYTES:
        return fault(f"has {len(raw)} bytes", f"a manifest has at most {_MAX_BYTES}")
    try:
        return raw.decode(), None
    except UnicodeDecodeError as error:
        return fault(f"is not UTF-8 (byte {error.start})", "save the file as UTF-8")


def _parsed(text: str) -> Iterator[tuple[Any, list[tuple[yaml.Mark, Any, str, str]]]]:
    loader = _JsonLoader(text)
    try:
        while loader.check_node():
            loader.collected = []
            node = loader.get_node()
            if _expanded(node, {}) > _MAX_VALUES:
                raise _TooLarge
            yield loader.construct_document(node), loader.collected
    finally:
        loader.dispose()


def _expanded(node: yaml.Node | None, known: dict[int, int]) -> int:
    """Values in a tree once every alias is written out: a short file can stand for more than memory holds."""
    if id(node) not in known:
        known[id(node)] = _MAX_VALUES  # what a node that contains itself counts
        children = node.value if isinstance(node, yaml.CollectionNode) else ()
        if isinstance(node, yaml.MappingNode):
            children = [part for pair in node.value for part in pair]
        known[id(node)] = 1 + sum(_expanded(child, known) for child in children)
    return known[id(node)]


def _syntax_fault(file: str, document: str, error: Exception) -> Fault:
    match error:
        case ConstructorError(problem_mark=yaml.Mark() as mark):
            problem, remedy = (
                "has a value that JSON cannot hold",
                "write a plain string, number, list or mapping",
            )
            return Fault(file, document, _place(mark), ABSENT, problem, remedy)
        case yaml.MarkedYAMLError(problem_mark=yaml.Mark() as mark):
            problem = f"is not valid YAML ({error.problem})"
            return Fault(
                file, document, _place(mark), ABSENT, problem, "correct the syntax there or just before"
            )
        case yaml.reader.ReaderError():
            problem = f"has a character that YAML does not allow (U+{error.character:04X})"
            return Fault(file, "", f"character {error.position + 1}", ABSENT, problem, "remove it")
        case _TooLarge():
            problem = f"holds more than {_MAX_VALUES} values once its aliases are written out"
            return Fault(
                file, document, "", ABSENT, problem, "write fewer aliases, and none that contains itself"
            )
        case RecursionError():
            return Fault(file, document, "", ABSENT, "is nested too deeply", "write it with fewer levels")
        case _:
            return Fault(file, document, "", ABSENT, f"is not valid YAML ({error})", "correct the syntax")


def _place(mark: yaml.Mark) -> str:
    return f"line {mark.line + 1}, column {mark.column + 1}"
