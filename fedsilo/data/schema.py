"""Schemata hold the names and types of data, and nothing of the data themselves.

A loader yields the schema of what it has read. A silo announces it before round 1, and the aggregator compares those
of all silos and of its own test set (`fedsilo.data.comparison`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, cast, get_args

from fedsilo.api.class_names import MAX_CLASSES, name_problem
from fedsilo.canonical import canonical_json
from fedsilo.errors import DataInvalid

ColumnType = Literal["number", "category", "text"]
"""What the entries of a column are."""

ValueRange = Literal["0 to 1", "-1 to 1", "0 to 255"]
"""Between which round numbers the values of an image lie, as training gets them. A silo never says more of them."""

MAX_COLUMNS: Final = 65_536

MAX_SCHEMA_BYTES: Final = 512 << 10
"""Largest schema in canonical JSON."""

_FIELDS: Final = ("classes", "columns", "target", "channels", "valueRange")
_COLUMN_FIELDS: Final = ("name", "type", "categories")


@dataclass(frozen=True)
class TableColumn:
    """A column of a table.

    :param categories: what a column of categories may hold, in the order of their numbers; None where that is unknown.
    """

    name: str
    type: ColumnType
    categories: tuple[str, ...] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON, without what is unknown."""
        categories = {} if self.categories is None else {"categories": list(self.categories)}
        return {"name": self.name, "type": self.type} | categories


@dataclass(frozen=True)
class Schema:
    """Names and types of data; None is what is not known.

    :param classes: names of the classes in the order of their labels.
    :param columns: features of a table, in the order in which the model gets them.
    :param target: the column that a model of a table predicts.
    :param channels: of an image.
    :param value_range: of an image.
    """

    classes: tuple[str, ...] | None = None
    columns: tuple[TableColumn, ...] | None = None
    target: TableColumn | None = None
    channels: int | None = None
    value_range: ValueRange | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON, without what is unknown; `from_dict` reads them back."""
        found: dict[str, Any] = {}
        if self.classes is not None:
            found["classes"] = list(self.classes)
        if self.columns is not None:
            found["columns"] = [column.to_dict() for column in self.columns]
        if self.target is not None:
            found["target"] = self.target.to_dict()
        if self.channels is not None:
            found["channels"] = self.channels
        if self.value_range is not None:
            found["valueRange"] = self.value_range
        return found

    @classmethod
    def from_dict(cls, value: object) -> Schema:
        """Read what `to_dict` wrote, and nothing else.

        :raises DataInvalid: naming the field.
        """
        fields = _fields("schema", value, _FIELDS, required=())
        channels, value_range = fields.get("channels"), fields.get("valueRange")
        if channels is not None and not (type(channels) is int and 1 <= channels <= MAX_COLUMNS):
            raise _invalid_value_error("schema: channels", channels, f"an integer from 1 to {MAX_COLUMNS}")
        if value_range is not None and value_range not in get_args(ValueRange):
            raise _invalid_value_error(
                "schema: valueRange", value_range, f"one of {', '.join(get_args(ValueRange))}"
            )
        columns, target = fields.get("columns"), fields.get("target")
        found = cls(
            None if "classes" not in fields else _names("schema: classes", fields["classes"]),
            None if columns is None else _columns(columns),
            None if target is None else _column("schema: target", target),
            channels,
            value_range,
        )
        found.to_json()
        return found

    def to_json(self) -> bytes:
        """Encoding of the schema as canonical JSON.

        :raises DataInvalid: when that is more than `MAX_SCHEMA_BYTES`.
        """
        content = canonical_json(self.to_dict())
        if len(content) > MAX_SCHEMA_BYTES:
            raise DataInvalid(
                f"the names of classes, columns and categories have {len(content)} bytes together; use shorter ones, "
                f"{MAX_SCHEMA_BYTES} is the most"
            )
        return content

    @classmethod
    def from_json(cls, content: bytes) -> Schema:
        """Read what `to_json` wrote; errors as `from_dict`."""
        try:
            value = json.loads(content)
        except (ValueError, RecursionError):
            raise DataInvalid("schema: is no JSON; send one object") from None
        return cls.from_dict(value)

    def digest(self) -> str:
        """SHA-256, in hexadecimal, of the canonical JSON."""
        return hashlib.sha256(self.to_json()).hexdigest()


def feature_names(schema: Schema, features: int) -> list[str]:
    """Names of the columns as features, or else their numbers."""
    names: list[str] = []
    for column in schema.columns or ():
        categories = column.categories
        names += [column.name] if categories is None else [f"{column.name}={name}" for name in categories]
    return names if len(names) == features else [str(place) for place in range(features)]


def _columns(value: object) -> tuple[TableColumn, ...]:
    if not isinstance(value, list) or len(value) > MAX_COLUMNS:
        raise _invalid_value_error("schema: columns", value, f"a list of at most {MAX_COLUMNS} columns")
    found = tuple(_column(f"schema: columns[{place}]", column) for place, column in enumerate(value))
    _names("schema: columns", [column.name for column in found])
    return found


def _column(what: str, value: object) -> TableColumn:
    fields = _fields(what, value, _COLUMN_FIELDS, required=("name", "type"))
    (name,) = _names(f"{what}: name", [fields["name"]])
    if fields["type"] not in get_args(ColumnType):
        raise _invalid_value_error(
            f"{what}: type", fields["type"], f"one of {', '.join(get_args(ColumnType))}"
        )
    categories = fields.get("categories")
    if categories is not None:
        categories = _names(f"{what}: categories", categories)
    return TableColumn(name, cast(ColumnType, fields["type"]), categories)


def _fields(what: str, value: object, known: tuple[str, ...], required: tuple[str, ...]) -> Mapping[str, Any]:
    if not isinstance(value, dict) or not value.keys() <= set(known) or not set(required) <= value.keys():
        raise _invalid_value_error(
            what, value, f"an object with {', '.join(required) or 'any'} of {', '.join(known)}"
        )
    return value


def _names(what: str, value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or len(value) > MAX_CLASSES:
        raise _invalid_value_error(what, value, f"a list of at most {MAX_CLASSES} names")
    for name in value:
        if not isinstance(name, str):
            raise _invalid_value_error(what, name, "text")
        if (problem := name_problem(name)) is not None:
            raise DataInvalid(f"{what}: {name[:100]!r} {problem[0]}; {problem[1]}")
    if len(set(value)) < len(value):
        twice = next(name for place, name in enumerate(value) if name in value[:place])
        raise DataInvalid(f"{what}: {twice!r} is there twice; give each a name of its own")
    return tuple(value)


def _invalid_value_error(what: str, value: object, wanted: str) -> DataInvalid:
    return DataInvalid(f"{what}: {str(value)[:80]!r} is not {wanted}; send that")
