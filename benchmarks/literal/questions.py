"""Questions and their variants, from `questions.yaml`, and the records of their runs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml
from pydantic import Field

from benchmarks.literal.runs import Course
from benchmarks.tables import definition
from benchmarks.tables.cells import Cell, cells
from benchmarks.tables.definition import Fields, merge_patch

FILE = Path(__file__).with_name("questions.yaml")


class Variant(Fields):
    """One change of a question's cell.

    :param settings: laid over the cell's, a JSON merge patch.
    :param loop: fields of the literal loop.
    """

    settings: dict[str, Any] = Field(default_factory=dict)
    loop: dict[str, Any] = Field(default_factory=dict)
    float64: bool = False


class Question(Fields):
    """A cell of a table, at reduced scale, and variants of it by title.

    :param measure: what a run's figure is, see `benchmarks.tables.measures`.
    :param panels: title of a panel of the picture -> variants whose curves it has.
    """

    table: str
    row: str
    column: str
    measure: str
    settings: dict[str, Any] = Field(default_factory=dict)
    variants: dict[str, Variant]
    panels: dict[str, list[str]] = Field(default_factory=dict)

    def cell(self, title: str, seed: int) -> Cell:
        """The cell with the variant's settings.

        :raises SystemExit: no such variant.
        """
        if title not in self.variants:
            raise SystemExit(f"--variants: {title!r} is not there; use some of {', '.join(self.variants)}")
        found = _settings(self.table, self.row, self.column, seed)
        settings = merge_patch(merge_patch(found, self.settings), self.variants[title].settings)
        return Cell(self.row, self.column, seed, settings)


@lru_cache(maxsize=8)
def _settings(table: str, row: str, column: str, seed: int) -> dict[str, Any]:
    return cells(definition.choose(table, "reduced", [row], [column]), seed + 1)[seed].settings


@dataclass(frozen=True)
class Record:
    """One run of a variant, a line of the file."""

    question: str
    variant: str
    seed: int
    course: Course
    machine: Mapping[str, str]

    def append(self, path: Path) -> None:
        """Write the record as the last line of the file, in JSON."""
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(self), sort_keys=True) + "\n")


def questions() -> dict[str, Question]:
    """All questions, by the name of their loop."""
    found = yaml.safe_load(FILE.read_text(encoding="utf-8"))
    return {name: Question.model_validate(question) for name, question in found.items()}


def records(path: Path) -> list[Record]:
    """The runs on file; none where there is no file."""
    if not path.exists():
        return []
    lines: Iterable[dict[str, Any]] = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return [Record(**{**line, "course": Course(**line["course"])}) for line in lines]
