"""The tables of papers as data: one file per paper in `papers/`, checked as it is read."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

PAPERS = Path(__file__).with_name("papers")
NUMBER = re.compile(r"(?P<mean>\d+(\.\d+)?)(±(?P<spread>\d+(\.\d+)?))?")
NO_FIGURE = "-"


class Fields(BaseModel):
    """Base of the tables' models, which refuses unknown fields."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Layer(Fields):
    """Settings that are laid over those below, mapping by mapping.

    :param data: dataset, and what `benchmarks.tables.datasets.load` does to it.
    :param partition: scheme and config of every silo's partition; `scheme: users`: silos are the dataset's own users.
    :param job: fields of the FederatedJob's spec.
    :param public: images at the aggregator for methods that learn there: `left: N` of the dataset that no silo has, or
        another `dataset`, and `samples` of it.
    """

    silos: int | None = None
    data: dict[str, Any] = Field(default_factory=dict)
    partition: dict[str, Any] = Field(default_factory=dict)
    job: dict[str, Any] = Field(default_factory=dict)
    public: dict[str, Any] = Field(default_factory=dict)


class IIDCalibration(Fields):
    """How a row's model is calibrated in the end, see `benchmarks.tables.reference`.

    :param perClass: real samples of each class, of what all silos have together; all where they have fewer.
    """

    per_class: int = Field(100, alias="perClass", ge=1)
    epochs: int = Field(10, ge=1)


class Row(Layer):
    """A method as the paper ran it.

    :param method: its name here, whether or not it exists.
    :param iid: calibrates the model on real samples, which no job may do; most rows have none.
    :param pooled: one silo has the images of all, which no job may do either.
    :param ownModels: the figure is of the silos' own models on the test set, which no silo has.
    :param reduced: what its settings become at reduced scale, where they count rounds.
    """

    method: str
    config: dict[str, Any] = Field(default_factory=dict)
    iid: IIDCalibration | None = None
    pooled: bool = False
    own_models: bool = Field(False, alias="ownModels")
    reduced: Layer = Layer()

    @property
    def references(self) -> dict[str, Any]:
        """What of `benchmarks.tables.reference` it is, as settings of a cell; nothing for most rows."""
        found: dict[str, Any] = {} if self.iid is None else {"iid": self.iid.model_dump(by_alias=True)}
        flags = {"pooled": self.pooled, "ownModels": self.own_models}
        return found | {name: True for name, is_one in flags.items() if is_one}


class Column(Layer):
    """A dataset, its partition and a network; or the mean of other columns.

    :param measure: how a figure comes of the accuracies of the rounds, see `benchmarks.tables.measures`.
    :param meanOf: columns over whose runs this one takes the mean of its measure; it has no runs of its own.
    :param rows: what differs in this column for a row, by the row's title.
    :param reduced: what differs in this column from the table's reduction, the same for all methods.
    """

    title: str
    measure: str | None = None
    mean_of: list[str] = Field(default=[], alias="meanOf")
    rows: dict[str, Layer] = Field(default_factory=dict)
    reduced: Layer = Layer()

    @model_validator(mode="after")
    def _a_mean_has_no_settings(self) -> Column:
        settings = self.model_fields_set - {"title", "measure", "mean_of"}
        if self.mean_of and settings:
            raise ValueError(f"meanOf: a mean has no runs and no {', '.join(sorted(settings))}")
        return self


class Reduction(Layer):
    """What is smaller at reduced scale, the same for all methods.

    :param note: the same as text.
    """

    note: str


class Table(Layer):
    """One table of a paper.

    :param values: row -> the paper's figures in the order of the columns, in percent; `-` where there is none.
    :param rows: titles; all of the paper's by default.
    :param wide: the page has one table with all columns side by side, for one that no paper has, and a picture of
        accuracy against bytes.
    """

    title: str
    measure: str = "last"
    wide: bool = False
    notes: list[str] = []
    columns: dict[str, Column]
    rows: list[str] = []
    values: dict[str, str] = Field(default_factory=dict)
    reduced: Reduction

    def measured_columns(self, column: str) -> list[str]:
        """The columns whose runs a column's figure is of: itself, or those that it is the mean of."""
        return self.columns[column].mean_of or [column]

    def reported_figure(self, row: str, column: str) -> ReportedFigure | None:
        """The paper's figure of a cell."""
        words = self.values.get(row, "").split()
        position = list(self.columns).index(column)
        word = words[position] if position < len(words) else NO_FIGURE
        return None if word == NO_FIGURE else ReportedFigure.parse(word)

    @model_validator(mode="after")
    def _means_are_of_runs(self) -> Table:
        for name, column in self.columns.items():
            for member in column.mean_of:
                if member not in self.columns or self.columns[member].mean_of:
                    raise ValueError(f"column {name}: meanOf: {member!r} is not a column that has runs")
        return self

    @model_validator(mode="after")
    def _figures_are_numbers(self) -> Table:
        for row, line in self.values.items():
            words = line.split()
            if len(words) > len(self.columns):
                raise ValueError(f"values of {row}: {len(words)} figures for {len(self.columns)} columns")
            for word in words:
                if word != NO_FIGURE and not NUMBER.fullmatch(word):
                    raise ValueError(f"values of {row}: {word!r} is not a figure such as 53.6±0.8")
        return self


class Paper(Fields):
    """A paper whose tables are run: its methods' settings, and its tables by number."""

    citation: str
    rows: dict[str, Row]
    tables: dict[str, Table]

    @model_validator(mode="after")
    def _rows_are_known(self) -> Paper:
        for number, table in self.tables.items():
            of_columns = [row for column in table.columns.values() for row in column.rows]
            for row in [*table.rows, *table.values, *of_columns]:
                if row not in self.rows:
                    raise ValueError(f"table {number}: {row!r} is not one of rows")
        return self


@dataclass(frozen=True)
class ReportedFigure:
    """A figure of a paper, in percent or rounds."""

    mean: float
    spread: float | None

    @classmethod
    def parse(cls, word: str) -> ReportedFigure:
        """A reported figure read from a word such as `53.6±0.8` or `53.6`."""
        match = NUMBER.fullmatch(word)
        assert match is not None, "Table has refused other forms"
        spread = match["spread"]
        return cls(float(match["mean"]), None if spread is None else float(spread))


Scale = Literal["full", "reduced"]


@dataclass(frozen=True)
class TableSelection:
    """A table and the part of it that is asked for.

    :param name: paper and number, such as `fedconcat-1`.
    """

    name: str
    paper: Paper
    table: Table
    rows: Sequence[str]
    columns: Sequence[str]
    scale: Scale


def names() -> list[str]:
    """Names of all tables, such as `fedconcat-1`."""
    return [f"{path.stem}-{number}" for path in sorted(PAPERS.glob("*.yaml")) for number in read(path).tables]


def read(path: Path) -> Paper:
    """Read one paper's file and check it.

    :raises SystemExit: with what is wrong in it.
    """
    try:
        return Paper.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    except (yaml.YAMLError, ValidationError) as error:
        raise SystemExit(f"{path.name}: {error}") from error


def choose(
    name: str, scale: Scale, rows: Sequence[str] | None = None, columns: Sequence[str] | None = None
) -> TableSelection:
    """A table, or some rows and columns of it; `fedconcat` is short for `fedconcat-1`.

    :raises SystemExit: naming what is not there, and what is.
    """
    known = names()
    full = name if name in known else f"{name}-1"
    if full not in known:
        raise SystemExit(f"{name}: is not a table; use one of {', '.join(known)}")
    stem, _, number = full.rpartition("-")
    paper = read(PAPERS / f"{stem}.yaml")
    table = paper.tables[number]
    every = table.rows or list(paper.rows)
    return TableSelection(
        full, paper, table, _part("rows", rows, every), _part("columns", columns, list(table.columns)), scale
    )


def _part(what: str, asked: Sequence[str] | None, every: Sequence[str]) -> list[str]:
    if not asked:
        return list(every)
    lower = {title.lower(): title for title in every}
    for title in asked:
        if title.lower() not in lower:
            raise SystemExit(f"--{what}: {title!r} is not there; use some of {', '.join(every)}")
    return [lower[title.lower()] for title in asked]


def merge_layers(layers: Sequence[Layer]) -> dict[str, Any]:
    """Layers of settings merged into one: later ones win, mappings are merged field by field."""
    result: dict[str, Any] = {}
    for layer in layers:
        fields = {name: getattr(layer, name) for name in Layer.model_fields}
        result = merge_patch(result, {name: value for name, value in fields.items() if value is not None})
    if not result["public"]:
        del result["public"]  # most cells have none, and are what they were before there was any
    return result


def merge_patch(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Mapping `above` laid over `below`, a JSON merge patch (RFC 7396): null takes a field away."""
    result = dict(below)
    for key, value in above.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, Mapping):
            under = result.get(key)
            result[key] = merge_patch(under if isinstance(under, Mapping) else {}, value)
        else:
            result[key] = value
    return result
