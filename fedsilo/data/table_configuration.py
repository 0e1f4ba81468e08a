"""What a manifest may write of a dataset in tables."""

from __future__ import annotations

import codecs
from typing import Annotated, Self

from pydantic import Field, model_validator

from fedsilo.api.class_names import name_problem
from fedsilo.api.common import invalid_value
from fedsilo.data.configuration import IN_MEMORY, Config, InMemoryFlag, Name, Names, Number

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
    person: Name | None = Field(
        None,
        description="the column that says whose each row is; it is no feature, and never leaves the silo",
    )
    in_memory: InMemoryFlag = IN_MEMORY

    @model_validator(mode="after")
    def _require_consistency(self) -> Self:
        for column, categories in self.categories.items():
            names = [NULL if name is None else name for name in categories]
            for name in names:
                if names.count(name) > 1:
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

    @property
    def targets(self) -> tuple[str, ...]:
        """Names of the columns to predict."""
        return (self.target,) if isinstance(self.target, str) else self.target


class CsvConfig(TableConfig):
    """Text files of rows and columns, with the names of columns in the first row of each."""

    delimiter: Annotated[str, Field(min_length=1, max_length=1)] = Field(
        ",", description="the character between two values"
    )
    encoding: str = Field("utf-8", description="the encoding of the text, as Python names it")
    missing: tuple[str, ...] = Field(
        ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "None"),
        description="texts that say that a value is missing",
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
