"""Pydantic's errors in plain English: a problem and a remedy for each type of error."""

from __future__ import annotations

import difflib
import types
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from fedsilo.api.faults import ABSENT_VALUE, MAX_FAULTS, Fault, dotted_path, truncation_fault
from fedsilo.api.patterns import FORMATS

_NUMBER = ("is {given}, not a number", "write a number{unquoted}")
_INTEGER = ("is {given}, not a whole number", "write a whole number{unquoted}")
_FLAG = ("is {given}, not true or false", "write true or false{unquoted}")
_TEXT = ("is {given}, not a string", "write a string in quotes")
_LIST = ("is {given}, not a list", "write a list")
_FIELDS = ("is {given}, not a mapping", "write a mapping of fields")

MESSAGES: dict[str, tuple[str, str]] = {
    "missing": ("is missing", "add it"),
    "int_type": _INTEGER,
    "int_parsing": _INTEGER,
    "int_parsing_size": ("is too large a number", "use a smaller one"),
    "int_from_float": _INTEGER,
    "float_type": _NUMBER,
    "float_parsing": _NUMBER,
    "finite_number": ("is not a finite number", "write a finite number"),
    "bool_type": _FLAG,
    "bool_parsing": _FLAG,
    "string_type": _TEXT,
    "string_sub_type": _TEXT,
    "list_type": _LIST,
    "tuple_type": _LIST,
    "set_type": _LIST,
    "dict_type": _FIELDS,
    "mapping_type": _FIELDS,
    "model_type": _FIELDS,
    "model_attributes_type": _FIELDS,
    "none_required": ("is not null", "remove it"),
    "literal_error": ("is not a known choice", "use {expected}"),
    "enum": ("is not a known choice", "use {expected}"),
    "greater_than": ("is too small", "use more than {gt}"),
    "greater_than_equal": ("is too small", "use {ge} or more"),
    "less_than": ("is too large", "use less than {lt}"),
    "less_than_equal": ("is too large", "use {le} or less"),
    "multiple_of": ("does not fit", "use a multiple of {multiple_of}"),
    "string_too_short": ("has fewer than {min_length} characters", "write more"),
    "string_too_long": ("has more than {max_length} characters", "shorten it"),
    "string_pattern_mismatch": ("has not the right form", "write {format}"),
    "too_short": ("has {entries}", "give {min_length} or more"),
    "too_long": ("has more than {max_length} entries", "give {max_length} or fewer"),
    "invalid_key": ("is not a string as a key", "put the key in quotes"),
    "fedsilo": ("{problem}", "{remedy}"),
}
"""Error type of pydantic -> problem and remedy; the names in braces come from the error's own context."""


def faults_of(
    error: ValidationError,
    model: type[BaseModel],
    *,
    file: str,
    document: str,
    under: Sequence[str | int] = (),
) -> list[Fault]:
    """Each error of a validation as a fault; beyond `MAX_FAULTS` one that says that there are more.

    :param model: what was validated; its fields are offered where one is misspelt.
    :param under: where in the document the validated value lies.
    """
    faults = []
    details = list(single_details(error))
    for detail in details[:MAX_FAULTS]:
        if detail["type"] == "too_short" and len(detail["input"]) >= detail["ctx"]["min_length"]:
            continue  # pydantic counts valid entries only, and each invalid one has its own fault
        path = [*under, *(part for part in detail["loc"] if part != "[key]")]
        context = detail.get("ctx", {})
        value = detail["input"] if detail["type"] != "missing" else ABSENT_VALUE
        if detail["type"] == "fedsilo" and context["path"]:
            path, value = [*path, *context["path"]], context["value"]
        elif detail["type"] == "fedsilo" and isinstance(value, BaseModel | dict):
            value = ABSENT_VALUE
        problem, remedy = message_of(detail, model)
        faults.append(Fault(file, document, dotted_path(path), value, problem, remedy))
    if len(details) > MAX_FAULTS:
        faults.append(truncation_fault(file))
    return faults


def single_details(error: ValidationError) -> Iterator[ErrorDetails]:
    """The errors of a validation, and apart from each other those that one validator has found together."""
    for detail in error.errors(include_url=False):
        context = detail.get("ctx", {})
        for one in (context, *context.get("others", ())):
            yield {**detail, "ctx": one}


def closest(name: object, known: Sequence[str]) -> str:
    """Remedy for a misspelt name: the nearest known one, otherwise all of them."""
    if not known:
        return "remove it"
    near = difflib.get_close_matches(str(name), known, n=1)
    return f"did you mean {near[0]}?" if near else f"use one of {', '.join(known)}"


def closest_or(name: object, known: Sequence[str], otherwise: str) -> str:
    """Remedy for an unknown name: the closest known one, as `closest` suggests it, and then a further remedy."""
    near = closest(name, known)
    return f"{near} {otherwise}" if near.endswith("?") else f"{near}; {otherwise}"


def message_of(detail: ErrorDetails, model: type[BaseModel]) -> tuple[str, str]:
    """Problem and remedy of one entry of `ValidationError.errors()` of a model."""
    context = detail.get("ctx", {})
    match detail["type"]:
        case "extra_forbidden":
            *owner, name = detail["loc"]
            return "is not a known field", closest(name, _fields_at(model, owner))
        case "value_error" | "assertion_error":
            problem, _, remedy = str(context["error"]).partition("; ")
            return problem, remedy or "correct it"
        case known if known in MESSAGES:
            facts = {key: int(fact) if _is_integer(fact) else fact for key, fact in context.items()}
            facts["given"] = _value_kind(detail["input"])
            facts["unquoted"] = " without quotes" if isinstance(detail["input"], str) else ""
            facts["expected"] = str(context.get("expected", "")).replace("'", "")
            facts["format"] = FORMATS.get(
                context.get("pattern", ""), f"text that matches {context.get('pattern')}"
            )
            facts["entries"] = (
                "1 entry" if facts.get("actual_length") == 1 else f"{facts.get('actual_length')} entries"
            )
            problem, remedy = MESSAGES[known]
            return problem.format_map(facts), remedy.format_map(facts)
        case unknown:
            return f"is not valid ({unknown.replace('_', ' ')})", "see the reference of manifests"


def _is_integer(fact: Any) -> bool:
    return isinstance(fact, float) and fact.is_integer()


def _value_kind(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "a truth value"
        case int():
            return "a number"
        case float():
            return "a decimal number"
        case str():
            return "a string"
        case list() | tuple():
            return "a list"
        case _:
            return "a mapping"


def _fields_at(model: type[BaseModel], path: Sequence[str | int]) -> list[str]:
    """Names that the mapping at a path may have, as they are written in YAML."""
    annotation: Any = model
    for part in path:
        found = next(_models_in(annotation), None)
        if isinstance(part, int) or found is None:
            continue
        fields = {field.alias or name: field.annotation for name, field in found.model_fields.items()}
        annotation = fields.get(part)
    found = next(_models_in(annotation), None)
    return [field.alias or name for name, field in found.model_fields.items()] if found else []


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """The models inside Optional, tuple and Annotated."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    elif get_origin(annotation) in (Union, types.UnionType, tuple, list, Annotated):
        for argument in get_args(annotation):
            yield from _models_in(argument)


def first_fault(error: ValidationError) -> str:
    """The first field that is wrong, and why; nothing in it was chosen by whoever wrote the field."""
    fault = error.errors(include_url=False, include_context=False, include_input=False)[0]
    return f"{escaped_text('.'.join(map(str, fault['loc'])))}: {escaped_text(fault['msg'])}"


def escaped_text(text: str) -> str:
    """A text from outside, so that it can neither steer a terminal nor fill it."""
    return ascii(text)[1:-1][:200]
