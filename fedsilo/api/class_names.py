"""How many classes a job tells apart, and what they are called."""

from __future__ import annotations

import re
import unicodedata
from typing import Annotated, Any, Final

from pydantic import AfterValidator, Field, PlainSerializer, PlainValidator, StringConstraints, WithJsonSchema
from pydantic_core import PydanticKnownError

from fedsilo.api.common import invalid_value
from fedsilo.api.text import count_text

_NO_CHARACTER: Final = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
"""Control characters, and halves of a pair of UTF-16."""

MIN_CLASSES: Final = 2
MAX_CLASSES: Final = 100_000

MAX_NAME_CHARACTERS: Final = 100
"""Longest name of a class, a category or a column."""

MAX_NAMES_BYTES: Final = 500_000
"""Longest list of names, in UTF-8 and with three bytes for each."""

SCHEMA: Final = {
    "x-type": f"integer {MIN_CLASSES} to {MAX_CLASSES}, or list of {MIN_CLASSES} to {MAX_CLASSES} names",
    "x-kubernetes-preserve-unknown-fields": True,
    "minimum": MIN_CLASSES,
    "maximum": MAX_CLASSES,
    "minItems": MIN_CLASSES,
    "maxItems": MAX_CLASSES,
}
"""A number or a list has no type in a structural schema, and none of the rules in CEL reaches it. The API server holds
the bounds, each against the form that it applies to; an admission policy (`manifests/admission/class-names.yaml`) and
the operator check the rest. `x-type` is what docs/manifests.md says."""


def name_problem(name: str) -> tuple[str, str] | None:
    """What is wrong with the name of a class, a category or a column, and the remedy; None for a good one."""
    if not 1 <= len(name) <= MAX_NAME_CHARACTERS:
        problem = "is empty" if not name else f"has more than {MAX_NAME_CHARACTERS} characters"
        return problem, "give a name" if not name else "shorten it"
    if _NO_CHARACTER.search(name):
        return "has a control character, or one that is no character", "remove it"
    if not unicodedata.is_normalized("NFC", name):
        return "is not in the composed form of Unicode (NFC)", "write it in that form"
    return None


def _checked_name(name: str) -> str:
    if (found := name_problem(name)) is not None:
        raise invalid_value(*found)
    return name


def _checked_classes(given: Any) -> int | tuple[str, ...]:
    """A number of classes, or their names.

    :raises PydanticCustomError: naming the entry.
    """
    if isinstance(given, list | tuple):
        return _checked_names(given)
    if isinstance(given, bool) or not isinstance(given, int):
        raise invalid_value(
            "is neither a whole number nor a list of names",
            "write the number of classes, or list their names",
        )
    if given < MIN_CLASSES:
        raise PydanticKnownError("greater_than_equal", {"ge": MIN_CLASSES})
    if given > MAX_CLASSES:
        raise PydanticKnownError("less_than_equal", {"le": MAX_CLASSES})
    return given


def _checked_names(given: list[Any] | tuple[Any, ...]) -> tuple[str, ...]:
    if not MIN_CLASSES <= len(given) <= MAX_CLASSES:
        wanted = f"give {MIN_CLASSES} or more" if len(given) < MIN_CLASSES else f"{MAX_CLASSES} is the most"
        raise invalid_value(f"lists {count_text(len(given), 'name')}", wanted)
    seen: dict[str, int] = {}
    for position, name in enumerate(given):
        if not isinstance(name, str):
            raise invalid_value("is not a string", "write the name in quotes", position, value=name)
        if (found := name_problem(name)) is not None:
            raise invalid_value(*found, position, value=name)
        if name in seen:
            problem = f"is also entry {seen[name]}"
            raise invalid_value(problem, "give each class a name of its own", position, value=name)
        seen[name] = position
    size = sum(len(name.encode()) + 3 for name in given)
    if size > MAX_NAMES_BYTES:
        raise invalid_value(
            f"has names of {size} bytes together", f"shorten them, {MAX_NAMES_BYTES} is the most"
        )
    return tuple(given)


def _as_it_is(value: Any) -> Any:
    return value


Classes = Annotated[
    int | tuple[str, ...],
    PlainValidator(_checked_classes),
    PlainSerializer(_as_it_is),
    WithJsonSchema(SCHEMA),
]
"""A number of classes, or their names in the order of the labels."""

ClassName = Annotated[
    str,
    StringConstraints(max_length=MAX_NAME_CHARACTERS),
    Field(json_schema_extra={"minLength": 1}),  # of which `name_problem` says it in plainer words
    AfterValidator(_checked_name),
]


def _checked_class(given: Any) -> int | str:
    """A class by its name or its number.

    :raises PydanticCustomError: saying what it is instead.
    """
    if isinstance(given, bool) or not isinstance(given, int | str):
        raise invalid_value(
            "is neither a name nor a number of a class", "write the name in quotes, or its number"
        )
    if isinstance(given, str):
        return _checked_name(given)
    if not 0 <= given < MAX_CLASSES:
        raise invalid_value("is no number of a class", f"use 0 to {MAX_CLASSES - 1}")
    return given


PositiveClass = Annotated[
    int | str,
    PlainValidator(_checked_class),
    PlainSerializer(_as_it_is),
    WithJsonSchema(
        {
            "x-type": "name or number of a class",
            "x-kubernetes-int-or-string": True,
            "minLength": 1,
            "maxLength": MAX_NAME_CHARACTERS,
            "minimum": 0,
            "maximum": MAX_CLASSES - 1,
        }
    ),
]
"""One of a job's two classes."""

ClassAliases = Annotated[dict[ClassName, ClassName], Field(max_length=100)]
"""A silo's own name of a class -> the job's."""
