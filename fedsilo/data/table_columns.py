"""Columns of a table: what their values become, and how a wrong one is named."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedsilo.api.text import comma_separated
from fedsilo.data.comparison import nearest_name
from fedsilo.data.schema import TableColumn
from fedsilo.data.table_configuration import NULL, TableConfig
from fedsilo.data.table_values import RowPlace, numbers, texts
from fedsilo.errors import quoted_value

if TYPE_CHECKING:
    import pyarrow


def encoder_of(column: str, config: TableConfig, imputes: bool) -> NumberColumn | CategoryColumn:
    """What a column becomes: a category where the configuration lists its values, otherwise a number.

    :param imputes: whether a number that the configuration does not fill in stays missing, for the job to impute it
    """
    if column in config.categories:
        return CategoryColumn(column, config)
    return NumberColumn(column, config, math.nan if imputes and config.fill is None else config.fill)


@dataclass(frozen=True)
class NumberColumn:
    """A column of numbers, which is one feature.

    :param fill: in place of a missing number; NaN leaves it missing, and None refuses it
    """

    column: str
    config: TableConfig
    fill: float | None

    @property
    def features(self) -> tuple[str, ...]:
        """Name of the column's one feature, which is that of the column."""
        return (self.column,)

    @property
    def schema_column(self) -> TableColumn:
        """The column in a schema."""
        return TableColumn(self.column, "number")

    def encode(self, values: pyarrow.Array, place: RowPlace, out: np.ndarray) -> None:
        """Write values into (n, 1) float32 or float64."""
        remedy = (
            "list its values in config.categories, add it to config.missing if it says that there is no value, or "
            "leave the column out"
        )
        found = numbers(values, place, self.column, self.config, remedy)
        missing = np.isnan(found)
        if missing.any():
            if self.fill is None:
                problem = (
                    "the value is missing; set config.fill to a number, have the job impute it "
                    "(spec.data.preprocessing), leave such rows out with config.dropMissing, or leave the column "
                    "out of config.columns"
                )
                raise place.fault(int(np.argmax(missing)), self.column, problem)
            found = np.where(missing, self.fill, found)
        with np.errstate(over="ignore"):
            out[:, 0] = found
            infinite = np.isinf(found.astype(np.float32))
        if infinite.any():
            row = int(np.argmax(infinite))
            raise place.fault(
                row,
                self.column,
                f"{quoted_value(found[row])} is not a finite float32; mend or remove the row",
            )


@dataclass(frozen=True)
class CategoryColumn:
    """A column of categories, each of which is a feature of 0 or 1."""

    column: str
    config: TableConfig

    @property
    def features(self) -> tuple[str, ...]:
        """One name for each category."""
        return tuple(f"{self.column}={name}" for name in self._names)

    @property
    def schema_column(self) -> TableColumn:
        """The column in a schema."""
        return TableColumn(self.column, "category", self._names)

    @property
    def _categories(self) -> tuple[str | None, ...]:
        return self.config.categories[self.column]

    @property
    def _names(self) -> tuple[str, ...]:
        return tuple(NULL if name is None else name for name in self._categories)

    def encode(self, values: pyarrow.Array, place: RowPlace, out: np.ndarray) -> None:
        """Write values into (n, categories) of 0, as 1 where a row has the category."""
        import pyarrow
        import pyarrow.compute

        given = texts(values, place, self.column, self.config.missing_texts(self.column))
        known = pyarrow.array(self._categories, pyarrow.string())
        found = pyarrow.compute.index_in(given, value_set=known)
        if found.null_count:
            row = pyarrow.compute.index(found.is_null(), True).as_py()
            raise place.fault(row, self.column, self._problem(given[row].as_py()))
        out[np.arange(len(out)), found.to_numpy()] = 1

    def _problem(self, text: str | None) -> str:
        """What is wrong with a value that is no category."""
        if text is None:
            return (
                "the value is missing; add null to config.categories of the column, or leave such rows out with "
                "config.dropMissing"
            )
        named = [name for name in self._categories if name is not None]
        if (near := nearest_name(text, named)) is not None:
            remedy = f"did you mean {near}?"
        else:
            remedy = f"mend it, or add it to {comma_separated(named)} in config.categories"
        return f"{quoted_value(repr(text))} is not one of its categories; {quoted_value(remedy)}"
