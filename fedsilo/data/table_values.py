"""Values of a table's columns, read as numbers, dates or texts; each that is none is named with its place.

Text is read as people write it: without surrounding white space, in Unicode's composed form, a minus sign of typography
as one of ASCII.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedsilo.data.table_configuration import TableConfig
from fedsilo.data.table_text import (
    MINUS,
    date_remedy,
    days_of,
    is_date,
    number_remedy,
    separator_expression,
    written_number,
)
from fedsilo.errors import DataInvalid, quoted_value

if TYPE_CHECKING:
    import pyarrow

_NO_NUMBER = "?"

_DAY_MICROSECONDS = 86_400_000_000


@dataclass(frozen=True)
class RowPlace:
    """Where a batch of rows is.

    :param file: its name
    :param rows: numbers of the batch's rows in the file, from 1, without a row of names
    """

    file: str
    rows: np.ndarray

    def fault(self, offset: int, column: str, problem: str) -> DataInvalid:
        """A fault of one value."""
        return DataInvalid(f"{self.file!r} row {self.rows[offset]}, column {column!r}: {problem}")


def numbers(
    values: pyarrow.Array, place: RowPlace, column: str, config: TableConfig, remedy: str
) -> np.ndarray:
    """Values as float64, NaN where one is missing; dates as days since 1970-01-01.

    :param remedy: for a value that no setting makes a number
    """
    import pyarrow

    types = pyarrow.types
    values = _decoded_values(values, place, column)
    kind = values.type
    if _is_text(kind):
        given = _stripped_texts(values, config.missing_texts(column))
        if column in config.dates:
            return _dates(given, place, column, config.dates[column])
        return _written_numbers(given, place, column, config, remedy)
    if types.is_date(kind) or types.is_timestamp(kind):
        # Both steps are exact for dates, and to the microsecond for times.
        microseconds = values.cast(pyarrow.timestamp("us", getattr(kind, "tz", None)), safe=False)
        found = microseconds.cast(pyarrow.int64()).cast(pyarrow.float64(), safe=False)
        return np.asarray(found.to_numpy(zero_copy_only=False) / _DAY_MICROSECONDS)
    if types.is_boolean(kind):
        values = values.cast(pyarrow.uint8())
    elif not _is_number(kind):
        raise place.fault(0, column, f"values of type {kind} are no numbers; {remedy}")
    return np.asarray(values.cast(pyarrow.float64(), safe=False).to_numpy(zero_copy_only=False))


def texts(values: pyarrow.Array, place: RowPlace, column: str, missing: Sequence[str]) -> pyarrow.Array:
    """Values as an array of text, whole numbers without a point, null where one is missing.

    :param missing: texts that say so
    """
    import pyarrow
    import pyarrow.compute

    values = _decoded_values(values, place, column)
    if pyarrow.types.is_floating(values.type):  # whole numbers of which some are missing are often stored so
        values = pyarrow.array([_number_text(number) for number in values.to_pylist()], pyarrow.string())
    try:
        given = values.cast(pyarrow.string())
    except (pyarrow.ArrowInvalid, pyarrow.ArrowNotImplementedError) as error:
        raise place.fault(
            0, column, f"values of type {values.type} are no categories; leave the column out"
        ) from error
    return pyarrow.compute.utf8_normalize(_stripped_texts(given, missing), form="NFC")


def missing_values(values: pyarrow.Array, place: RowPlace, column: str, missing: Sequence[str]) -> np.ndarray:
    """Where a column has no value, (n,) bool.

    :param missing: texts that say so
    """
    import pyarrow.compute

    values = _decoded_values(values, place, column)
    if _is_text(values.type):
        values = _stripped_texts(values, missing)
    return np.asarray(
        pyarrow.compute.is_null(values, nan_is_null=True).to_numpy(zero_copy_only=False), dtype=bool
    )


def _stripped_texts(values: pyarrow.Array, missing: Sequence[str]) -> pyarrow.Array:
    """Texts without surrounding white space, null where one says that the value is missing."""
    import pyarrow
    import pyarrow.compute

    given = pyarrow.compute.utf8_trim_whitespace(values)
    absent = pyarrow.compute.is_in(given, value_set=pyarrow.array(missing, given.type))
    return pyarrow.compute.if_else(absent, pyarrow.scalar(None, given.type), given)


def _written_numbers(
    given: pyarrow.Array, place: RowPlace, column: str, config: TableConfig, remedy: str
) -> np.ndarray:
    import pyarrow
    import pyarrow.compute

    plain = pyarrow.compute.replace_substring(given, MINUS, "-")
    if (config.decimal, config.thousands) != (".", None):
        plain = _plain_numbers(plain, config)
    try:
        return np.asarray(plain.cast(pyarrow.float64()).to_numpy(zero_copy_only=False))
    except pyarrow.ArrowInvalid:
        row = _first_row(plain, _is_float)
    wrong, others = given[row].as_py(), [text for text in given.to_pylist() if text is not None]
    what = number_remedy(wrong, others, config) or remedy
    raise place.fault(row, column, f"{quoted_value(repr(wrong))} is not a number; {what}")


def _plain_numbers(texts: pyarrow.Array, config: TableConfig) -> pyarrow.Array:
    """Numbers as Arrow reads them, of texts with other separators; in place of any other text what is no number."""
    import pyarrow.compute

    found = pyarrow.compute.match_substring_regex(texts, written_number(config.decimal, config.thousands))
    if config.thousands is not None:
        texts = pyarrow.compute.replace_substring_regex(texts, separator_expression(config.thousands), "")
    if config.decimal != ".":
        texts = pyarrow.compute.replace_substring(texts, config.decimal, ".")
    return pyarrow.compute.if_else(found, texts, _NO_NUMBER)


def _dates(given: pyarrow.Array, place: RowPlace, column: str, form: str) -> np.ndarray:
    """Dates in text as days; Arrow's own reader takes 31 February for 2 March."""
    import pyarrow
    import pyarrow.compute

    coded = pyarrow.compute.dictionary_encode(given)
    written: list[str] = coded.dictionary.to_pylist()
    try:
        days = [days_of(text, form) for text in written]
    except ValueError:
        row = _first_row(given, lambda text: is_date(text, form))
        problem = f"{quoted_value(repr(given[row].as_py()))} is not a date as config.dates has it, {form}"
        raise place.fault(row, column, f"{problem}; {date_remedy(written)}") from None
    places = coded.indices.fill_null(len(days)).to_numpy(zero_copy_only=False)
    return np.asarray(np.array([*days, math.nan])[places])


def _first_row(texts: pyarrow.Array, is_right: Callable[[str], bool]) -> int:
    """The first row whose text is wrong, of texts of which one is."""
    return next(row for row, text in enumerate(texts.to_pylist()) if text is not None and not is_right(text))


def _is_text(kind: pyarrow.DataType) -> bool:
    import pyarrow

    return bool(pyarrow.types.is_string(kind) or pyarrow.types.is_large_string(kind))


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
