"""What a manifest may write of a dataset in tables."""

from __future__ import annotations

import codecs
from collections import Counter
from collections.abc import Collection
from datetime import UTC, datetime
from typing import Annotated, Self

from pydantic import Field, model_validator

from fedsilo.api.class_names import name_problem
from fedsilo.api.common import invalid_value
from fedsilo.data.configuration import IN_MEMORY, Config, InMemoryFlag, Integer, Name, Names, Number

Separator = Annotated[str, Field(min_length=1, max_length=1, pattern=r"^[^0-9A-Za-z+-]$")]

NULL = "null"
"""What the category of a missing value is called in names of features and in schemata."""


class TableConfig(Config):
    """Settings of tables in files: columns that become features, and the column to predict."""

    path: Name | Names = Field(
        description="a file, a folder whose files are read in order of name, or a list of both"
    )
    target: Name | Names = Field(
        description="the column to predict; a list of columns of numbers for a target of several values"
    )
    columns: Names | None = Field(
        None, description="the columns of the features, in this order; all but the target by default"
    )
    categories: dict[str, Annotated[tuple[str | None, ...], Field(min_length=1)]] = Field(
        default_factory=dict,
        description="column to the list of its categories, each of which becomes a feature of 0 or 1;"
        " null among them is the category of a missing value",
    )
    fill: Number | None = Field(
        None, description="the number in place of a missing one; without it a missing number is refused"
    )
    drop_missing: Names | None = Field(
        None, description="columns; a row in which one of them has no value is left out"
    )
    missing: tuple[str, ...] = Field(
        (), description="texts that say that a value is missing; not in a column that has them as categories"
    )
    decimal: Separator = Field(".", description="the character before the decimals of a number in text")
    thousands: Separator | None = Field(
        None,
        description="the character between groups of digits of a number in text; a space stands for all kinds",
    )
    dates: dict[Name, str] = Field(
        default_factory=dict,
        description="column to the format of its dates, as strftime writes it; they become days since 1970-01-01",
    )
    person: Name | None = Field(
        None,
        description="the column that says whose each row is; it is no feature, and never leaves the silo",
    )
    in_memory: InMemoryFlag = IN_MEMORY

    @model_validator(mode="after")
    def _require_consistency(self) -> Self:
        self._require_names()
        for column, categories in self.categories.items():
            names = Counter(NULL if name is None else name for name in categories)
            for name, count in names.items():
                if count > 1:
                    raise invalid_value("is listed twice", "remove one", "categories", column, value=name)
                if (found := name_problem(name)) is not None:
                    raise invalid_value(*found, "categories", column, value=name)
            if self.columns is not None and column not in self.columns:
                remedy = "add it to columns or remove it here"
                raise invalid_value("is not among columns", remedy, "categories", column, value=column)
        if self.person is not None and self.person in (*self.targets, *(self.columns or ())):
            remedy = "name another column, or the model would learn who somebody is"
            raise invalid_value("is also a feature or the target", remedy, "person", value=self.person)
        for column in self.columns or ():
            if column in self.targets:
                remedy = "remove it, or the model would learn from the answer"
                raise invalid_value("is also the target", remedy, "columns", value=column)
        return self

    @model_validator(mode="after")
    def _require_notation(self) -> Self:
        if self.decimal == self.thousands:
            remedy = "remove one, or set the other"
            raise invalid_value("is also the decimal separator", remedy, "thousands", value=self.thousands)
        for column, form in self.dates.items():
            if column in self.categories:
                raise invalid_value("is also in categories", "remove one", "dates", column, value=column)
            if self.columns is not None and column not in (*self.columns, *self.targets):
                remedy = "add it to columns or remove it here"
                raise invalid_value("is not among columns", remedy, "dates", column, value=column)
            if not _is_date_format(form):
                remedy = "write one as strftime does, such as '%Y-%m-%d' or '%d.%m.%Y'"
                raise invalid_value("is no format of dates", remedy, "dates", column, value=form)
        return self

    def _require_names(self) -> None:
        """Names of columns as a file's are compared with them, of which each can stand in a schema."""
        named = {
            "target": self.targets,
            "columns": self.columns or (),
            "categories": self.categories,
            "dropMissing": self.drop_missing or (),
            "dates": self.dates,
            "person": () if self.person is None else (self.person,),
        }
        for field, names in named.items():
            for name in names:
                if (found := name_problem(name)) is not None:
                    raise invalid_value(*found, field, value=name)

    @property
    def targets(self) -> tuple[str, ...]:
        """Names of the columns to predict."""
        return (self.target,) if isinstance(self.target, str) else self.target

    @property
    def used_columns(self) -> tuple[str, ...]:
        """Columns that the settings name, each once, and that a file must have."""
        person = () if self.person is None else (self.person,)
        named = (*self.targets, *person, *(self.columns or ()), *self.categories, *self.dates)
        return tuple(dict.fromkeys((*named, *(self.drop_missing or ()))))

    @property
    def feature_count(self) -> int | None:
        """How many features the settings list; None where the columns are those that the file happens to have."""
        if self.columns is None:
            return None
        return sum(len(self.categories.get(column, ("",))) for column in self.columns)

    def missing_texts(self, column: str, names: Collection[str] = ()) -> tuple[str, ...]:
        """Texts that say in a column that a value is missing: none that is a category, or another name, there."""
        known = {*names, *self.categories.get(column, ())}
        return tuple(text.strip() for text in self.missing if text.strip() not in known)


class CsvConfig(TableConfig):
    """Text files of rows and columns, with the names of columns in the first row of each."""

    delimiter: Annotated[str, Field(min_length=1, max_length=1)] = Field(
        ",", description="the character between two values"
    )
    encoding: str = Field("utf-8", description="the encoding of the text, as Python names it")
    skip_rows: Annotated[Integer, Field(ge=0, le=1000)] = Field(
        0, description="how many lines precede the names of columns"
    )
    missing: tuple[str, ...] = Field(
        ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "None"),
        description="texts that say that a value is missing; not in a column that has them as categories",
    )

    @model_validator(mode="after")
    def _known_encoding(self) -> Self:
        try:
            codecs.lookup(self.encoding)
        except LookupError:
            remedy = "use one of Python's, such as utf-8, latin-1, cp1252 or utf-16"
            raise invalid_value("is not a known encoding", remedy, "encoding", value=self.encoding) from None
        return self


class ParquetConfig(TableConfig):
    """Files in Apache Parquet."""


def _is_date_format(form: str) -> bool:
    """Whether dates that are written so can be read, and differ."""
    moments = datetime(2001, 2, 3, 4, 5, 6, tzinfo=UTC), datetime(2012, 11, 10, 9, 8, 7, tzinfo=UTC)
    try:
        texts = [moment.strftime(form) for moment in moments]
        return len({datetime.strptime(text, form) for text in texts}) == len(moments)
    except (ValueError, OverflowError):
        return False
