"""What a person meant by a document with faults, as far as it can be told: the rest of it is checked all the same."""

from __future__ import annotations

from copy import deepcopy
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from fedsilo.api.faults import Fault
from fedsilo.api.messages import single_details

Model = TypeVar("Model", bound=BaseModel)

_NUMBERS = frozenset(("int_type", "float_type"))


def understood_part(content: dict[str, Any], model: type[Model], error: ValidationError) -> Model | None:
    """The object of a document without its faults; None where it is none without them.

    Quoted numbers are numbers, and whatever else is wrong is left out, so that its default takes its place.

    :param error: what is wrong with the content.
    """
    content = deepcopy(content)
    for detail in single_details(error):
        place = [part for part in detail["loc"] if part != "[key]"]
        inner = [*place, *detail.get("ctx", {}).get("path", ())]
        # What is missing cannot be left out, but what lacks it.
        if not _mend(content, inner, detail["type"]):
            _mend(content, place, detail["type"])
    try:
        return model.model_validate(content)
    except ValidationError:
        return None


def further_faults(faults: list[Fault], found: list[Fault]) -> list[Fault]:
    """Leave out of the faults of what is understood of a file those that follow from its other faults.

    :param faults: of the file, before.
    """
    return [fault for fault in found if not any(_is_within(fault, known) for known in faults)]


def _is_within(fault: Fault, known: Fault) -> bool:
    """Whether a fault lies in a field that has another, or in the section around it."""
    here, there = f"{fault.path}.", f"{known.path}."
    return fault.document == known.document and (here.startswith(there) or there.startswith(here))


def _mend(content: Any, path: list[str | int], problem: str) -> bool:
    """Leave out a field, or write the number that it stands for; whether it was there."""
    *owners, last = path or [""]
    for part in owners:
        if not isinstance(content, dict | list):
            return False
        try:
            content = content[part]  # type: ignore[index]
        except (KeyError, IndexError, TypeError):
            return False
    if not isinstance(content, dict) or last not in content:
        return False
    number = _number(content[last]) if problem in _NUMBERS else None
    if number is None:
        del content[last]
    else:
        content[last] = number
    return True


def _number(value: Any) -> int | float | None:
    """What a quoted number stands for."""
    for read in (int, float):
        try:
            return read(value) if isinstance(value, str) else None
        except ValueError:
            continue
    return None
