"""Columns of a table: what their values become, and how a wrong one is named."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedsilo.api.messages import closest
from fedsilo.data.schema import TableColumn
from fedsilo.data.table_configuration import NULL, TableConfig
from fedsilo.errors import DataInvalid, quoted_value

if TYPE_CHECKING:
    import pyarrow


@dataclass(frozen=True)
class RowPlace:
    """Where a batch of rows is.

    :param file: its name
    :param row: number of the batch's first row, from 1, without a row of names
    """

    file: str
    row: int

    def fault(self, offset: int, column: str, problem: str) -> DataInvalid:
        """A fault of one value."""
        return DataInvalid(f"{self.file!r} row {self.row + offset}, column {column!r}: {problem}")


def encoder_of(column: str, config: TableConfig, imputes: bool) -> NumberColumn | CategoryColumn:
    """What a column becomes: a category where the configuration lists its values, otherwise a number.

    :param imputes: whether a number that the configuration does not fill in stays missing, for the job to impute it
    """
    if column in config.categories:
        return CategoryColumn(column, config.categories[column])
    return NumberColumn(column, math.nan if imputes and config.fill is None else config.fill)


@dataclass(frozen=True)
class NumberColumn:
    """A column of numbers, which is one feature.

    :param fill: in place of a missing number; NaN leaves it missing, and None refuses it
    """

    column: str
    fill: float | None

    @property
    def features(self) -> tuple[str, ...]:
        """Name of the column's one feature, which is that of the column."""
        return (self.column,)

    @property
    def schema_column(self) -> TableColumn:
        """The column in a schema."""
        return TableColumn(self.column, "number")

    def encode(self, values: pyarrow.Array, place: RowPlace) -> np.ndarray:
        """Values as (n, 1) float64."""
        found = numbers(
            values, place, self.column, "list its values in config.categories, or leave the column out"
        )
        missing = np.isnan(found)
        if missing.any():
            if self.fill is None:
                problem = (
                    "the value is missing; set config.fill to a number, have the job impute it "
                    "(spec.data.preprocessing), or leave the column out of config.columns"
                )
                raise place.fault(int(np.argmax(missing)), self.column, problem)
            found = np.where(missing, self.fill, found)
        with np.errstate(over="ignore"):
            infinite = np.isinf(found.astype(np.float32))
        if infinite.any():
            row = int(np.argmax(infinite))
            raise place.fault(
                row,
                self.column,
                f"{quoted_value(found[row])} is not a finite float32; mend or remove the row",
            )
        return found[:, np.newaxis]


@dataclass(frozen=True)
class CategoryColumn:
    """A column of categories, each of which is a feature of 0 or 1."""

    column: str
    categories: tuple[str | None, ...]

    @property
    def features(self) -> tuple[str, ...]:
        """One name for each category."""
        return tuple(f"{self.column}={name}" for name in self._names)

    @property
    def schema_column(self) -> TableColumn:
        """The column in a schema."""
        return TableColumn(self.column, "category", self._names)

    @property
    def _names(self) -> tuple[str, ...]:
        return tuple(NULL if name is None else name for name in self.categories)

    def encode(self, values: pyarrow.Array, place: RowPlace) -> np.ndarray:
        """Values as (n, categories) of 0 and 1."""
        given = texts(values, place, self.column)
        index = {name: position for position, name in enumerate(self.categories)}
        found = np.array([index.get(text, -1) for text in given], dtype=np.int64)
        unknown = found < 0
        if unknown.any():
            row = int(np.argmax(unknown))
            text = given[row]
            if text is None:
                problem = (
                    "the value is missing; add null to config.categories of the column, or leave the row out"
                )
            else:
                named = [name for name in self.categories if name is not None]
                remedy = quoted_value(closest(text, named))
                problem = f"{quoted_value(repr(text))} is not one of its categories; {remedy}"
            raise place.fault(row, self.column, problem)
        return np.eye(len(self.categories))[found]


def numbers(values: pyarrow.Array, place: RowPlace, column: str, remedy: str) -> np.ndarray:
    """Values as float64, NaN where one is missing."""
    import pyarrow
    import pyarrow.compute

    values = _decoded_values(values, place, column)
    kind = values.type
    if pyarrow.types.is_string(kind) or pyarrow.types.is_large_string(kind):
        values = pyarrow.compute.utf8_trim_whitespace(values)
    elif not (pyarrow.types.is_boolean(kind) or _is_number(kind)):
        raise place.fault(0, column, f"values of type {kind} are no numbers; {remedy}")
    try:
        if pyarrow.types.is_boolean(kind):
            values = values.cast(pyarrow.uint8())
        found = values.cast(pyarrow.float64(), safe=False)
    except pyarrow.ArrowInvalid:
        given = values.to_pylist()
        row = next(row for row, text in enumerate(given) if text is not None and not _is_float(text))
        raise place.fault(
            row, column, f"{quoted_value(repr(given[row]))} is not a number; {remedy}"
        ) from None
    result: np.ndarray = found.to_numpy(zero_copy_only=False)
    return result


def _is_number(kind: pyarrow.DataType) -> bool:
    import pyarrow

    types = pyarrow.types
    return bool(
        types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind) or types.is_null(kind)
    )


def _is_float(text: str) -> bool:
    import pyarrow

    try:
        pyarrow.scalar(text).cast(pyarrow.float64())
    except pyarrow.ArrowInvalid:
        return False
    return True


def texts(values: pyarrow.Array, place: RowPlace, column: str) -> list[str | None]:
    """Values as text, whole numbers without a point, None where one is missing."""
    import pyarrow

    values = _decoded_values(values, place, column)
    if pyarrow.types.is_floating(values.type):  # whole numbers of which some are missing are often stored so
        return [_number_text(number) for number in values.to_pylist()]
    try:
        given: list[str | None] = values.cast(pyarrow.string()).to_pylist()
    except (pyarrow.ArrowInvalid, pyarrow.ArrowNotImplementedError) as error:
        raise place.fault(
            0, column, f"values of type {values.type} are no categories; leave the column out"
        ) from error
    return [None if text is None else text.strip() for text in given]


def _number_text(number: float | None) -> str | None:
    if number is None or math.isnan(number):
        return None
    return str(int(number)) if number.is_integer() else str(number)


def _decoded_values(values: pyarrow.Array, place: RowPlace, column: str) -> pyarrow.Array:
    """Values without a dictionary, all of which can be read: Arrow checks neither UTF-8 nor places in a dictionary."""
    import pyarrow

    try:
        values.validate(full=True)
        return values.dictionary_decode() if pyarrow.types.is_dictionary(values.type) else values
    except pyarrow.ArrowException:
        row = next((row for row in range(len(values)) if not _is_readable(values, row)), 0)
        raise place.fault(
            row, column, "the value is damaged, or its text is not UTF-8; write the file anew"
        ) from None


def _is_readable(values: pyarrow.Array, row: int) -> bool:
    import pyarrow

    try:
        values[row].as_py()
    except (pyarrow.ArrowException, UnicodeError, IndexError):
        return False
    return True
