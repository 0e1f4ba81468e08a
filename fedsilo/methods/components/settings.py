"""Settings of a task, as a silo half reads them: they come from the aggregator, so each has a type and a range."""

from __future__ import annotations

from fedsilo.errors import MethodError
from fedsilo.methods.interface import SiloTask
from fedsilo.methods.state import Scalar


def whole_number(task: SiloTask, name: str, least: int, most: int) -> int:
    """A setting that counts something.

    :raises MethodError: it is missing, no integer, or outside its range.
    """
    value = task.settings.get(name)
    if isinstance(value, int) and not isinstance(value, bool) and least <= value <= most:
        return value
    raise _invalid_value_error(name, value, f"a whole number from {least} to {most}")


def number(task: SiloTask, name: str, least: float, most: float) -> float:
    """A setting that measures something.

    :raises MethodError: it is missing, no number, or outside its range.
    """
    value = task.settings.get(name)
    if isinstance(value, int | float) and not isinstance(value, bool) and least <= value <= most:
        return float(value)
    raise _invalid_value_error(name, value, f"a number from {least:g} to {most:g}")


def _invalid_value_error(name: str, value: Scalar | None, wanted: str) -> MethodError:
    problem = "is missing" if value is None else f"{value!r} is not {wanted}"
    return MethodError(f"task setting {name}: {problem}; run the aggregator and the silos in one version")
