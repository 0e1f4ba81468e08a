"""Numbers of NumPy and PyTorch as numbers of Python: what people's own functions return is taken as what it is."""

from __future__ import annotations

from typing import Any


def plain_number(value: Any) -> Any:
    """A number of NumPy, or the one element of an array or tensor, as a number of Python; all else as it is."""
    if isinstance(value, int | float) or not callable(getattr(value, "item", None)):
        return value
    try:
        found = value.item()
    except (TypeError, ValueError, RuntimeError):  # of several elements
        return value
    return found if isinstance(found, int | float) else value
