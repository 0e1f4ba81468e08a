"""YAML as `kubectl` reads it, with every fault located.

`kubectl` turns YAML into JSON before anything else. This reader does so too, and one file means the same to
both: no dates, no base-60 numbers, `1e-5` is a number, keys are strings, and a key that is given twice is a
fault instead of a silent loss.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml
from typing_extensions import override
from yaml.constructor import ConstructorError

from fedsilo.api.faults import ABSENT_VALUE, Fault
from fedsilo.api.json_yaml import (
    MAX_VALUES,
    CollectedFault,
    JsonLoader,
    Mark,
    ScalarError,
    SizeError,
    expanded_value_count,
)
from fedsilo.api.text import first_line
from fedsilo.errors import UnfitFile
from fedsilo.files.plain_files import read_named

IN_MEMORY_FILE_NAME = "manifest"
"""What stands for the file of documents that a program has written."""

_MAX_BYTES = 2 * 1024 * 1024


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

    @override
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
class DocumentList:
    """What a file holds.

    :param complete: False when a fault hides the rest of the file, so that nothing can be said to be missing.
    """

    documents: tuple[Document, ...]
    faults: tuple[Fault, ...]
    complete: bool = True


def read_documents(path: Path) -> DocumentList:
    """All mappings of a YAML or JSON file; empty documents are passed over, and torn ones are faults.

    :param path: a plain file, a link to one, or what a shell hands over as `/dev/stdin` or `<(command)`.
    """
    text, fault = _text_of(path)
    if fault:
        return DocumentList((), (fault,), complete=False)
    return documents_in(text, str(path))


def documents_in(text: str, file: str) -> DocumentList:
    """All mappings of a text of YAML or JSON, as those of a file.

    :param file: where the text comes from, for faults.
    """
    documents: list[Document] = []
    faults: list[Fault] = []
    complete = True
    for number, parsed in enumerate(_parse_documents(text), start=1):
        if isinstance(parsed, Exception):
            faults.append(_syntax_fault(file, f"document {number}", parsed))
            complete = False
        elif isinstance(parsed.content, dict):
            document = Document(file, number, parsed.content)
            documents.append(document)
            faults += [document.fault(_place(mark), *rest) for mark, *rest in parsed.collected]
        elif parsed.content is not None:
            remedy = "write a mapping with apiVersion, kind, metadata and spec"
            faults.append(Fault(file, f"document {number}", "", parsed.content, "is not a mapping", remedy))
    return DocumentList(tuple(documents), tuple(faults), complete)


def documents_of(contents: Sequence[Mapping[str, Any]]) -> DocumentList:
    """Documents that a program has written as mappings, as if they stood in a file called `manifest`."""
    documents: list[Document] = []
    faults: list[Fault] = []
    for number, content in enumerate(contents, start=1):
        try:
            plain = json.loads(json.dumps(content))
        except (TypeError, ValueError, RecursionError) as error:
            place, problem = f"document {number}", f"has a value that JSON cannot hold ({first_line(error)})"
            remedy = "write plain strings, numbers, lists and mappings"
            faults.append(Fault(IN_MEMORY_FILE_NAME, place, "", ABSENT_VALUE, problem, remedy))
            continue
        if isinstance(plain, dict):
            documents.append(Document(IN_MEMORY_FILE_NAME, number, plain))
        else:
            remedy = "write a mapping with apiVersion, kind, metadata and spec"
            faults.append(
                Fault(IN_MEMORY_FILE_NAME, f"document {number}", "", plain, "is not a mapping", remedy)
            )
    return DocumentList(tuple(documents), tuple(faults), complete=not faults)


def _text_of(path: Path) -> tuple[str, Fault | None]:
    def fault(problem: str, remedy: str) -> tuple[str, Fault]:
        return "", Fault(str(path), "", "", ABSENT_VALUE, problem, remedy)

    try:
        raw = read_named(path, _MAX_BYTES)
    except FileNotFoundError:
        return fault("does not exist", "check the name of the file")
    except UnfitFile as unfit:
        return fault(str(unfit.strerror), f"name a plain file of at most {_MAX_BYTES} bytes, or /dev/stdin")
    except OSError as error:
        return fault(f"cannot be read ({error.strerror})", "name a file that can be read")
    try:
        return raw.decode(), None
    except UnicodeDecodeError as error:
        return fault(f"is not UTF-8 (byte {error.start})", "save the file as UTF-8")


@dataclass(frozen=True)
class _ParsedDocument:
    content: Any
    collected: list[CollectedFault]


_BEGINNING = re.compile(r"^---(?=\s|$)", re.MULTILINE)
"""The line that begins a document, which stands within none (YAML 1.1, section 9.1)."""


def _parse_documents(text: str) -> Iterator[_ParsedDocument | Exception]:
    """Each document of a text, or why it is none: a torn one hides no other."""
    line = fetched = 0
    for start, part in _parts(text):
        loader: JsonLoader | None = None
        try:
            loader = JsonLoader(part, line, fetched)
            yield from _documents_of_loader(loader)
        except SizeError as error:
            yield error
            return
        except (yaml.YAMLError, RecursionError, ValueError) as error:
            if isinstance(error, yaml.reader.ReaderError):
                error.position += start
            yield error
        finally:
            if loader is not None:
                fetched = loader.fetched
                loader.dispose()
        line += part.count("\n")


def _parts(text: str) -> Iterator[tuple[int, str]]:
    """Where each part of a text begins that holds documents of its own, and the part."""
    starts = [0]
    for found in _BEGINNING.finditer(text):
        starts.append(_directives_start(text, starts[-1], found.start()))
    for start, end in pairwise([*starts, len(text)]):
        yield start, text[start:end]


def _directives_start(text: str, least: int, beginning: int) -> int:
    """Where the first of the directives is that a document's beginning follows; the beginning where it follows none."""
    first = place = beginning
    for line in reversed(text[least:beginning].split("\n")[:-1]):
        place -= len(line) + 1
        if line.startswith("%"):
            first = place
        elif line.strip() and not line.lstrip().startswith("#"):
            break
    return first


def _documents_of_loader(loader: JsonLoader) -> Iterator[_ParsedDocument]:
    while loader.check_node():
        loader.collected = []
        node = loader.get_node()
        if expanded_value_count(node, {}) > MAX_VALUES:
            problem = f"holds more than {MAX_VALUES} values once its aliases are written out"
            raise SizeError(problem, "write fewer aliases, and none that contains itself")
        yield _ParsedDocument(loader.construct_document(node), loader.collected)


def _syntax_fault(file: str, document: str, error: Exception) -> Fault:
    match error:
        case ScalarError():
            return Fault(file, document, _place(error.mark), error.value, error.problem, error.remedy)
        case ConstructorError(problem_mark=Mark() as mark):
            problem, remedy = (
                "has a value that JSON cannot hold",
                "write a plain string, number, list or mapping",
            )
            return Fault(file, document, _place(mark), ABSENT_VALUE, problem, remedy)
        case yaml.MarkedYAMLError(problem_mark=Mark() as mark):
            problem = f"is not valid YAML ({error.problem})"
            return Fault(
                file, document, _place(mark), ABSENT_VALUE, problem, "correct the syntax there or just before"
            )
        case yaml.reader.ReaderError():
            problem = f"has a character that YAML does not allow (U+{error.character:04X})"
            return Fault(file, "", f"character {error.position + 1}", ABSENT_VALUE, problem, "remove it")
        case SizeError():
            return Fault(file, document, "", ABSENT_VALUE, error.problem, error.remedy)
        case RecursionError():
            return Fault(
                file, document, "", ABSENT_VALUE, "is nested too deeply", "write it with fewer levels"
            )
        case _:
            return Fault(
                file, document, "", ABSENT_VALUE, f"is not valid YAML ({error})", "correct the syntax"
            )


def _place(mark: Mark) -> str:
    return f"line {mark.line + 1}, column {mark.column + 1}"
