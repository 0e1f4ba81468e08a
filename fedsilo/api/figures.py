"""Figures as JSON can state them: it has neither NaN nor infinity (RFC 8259, section 6)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


def finite(figures: Mapping[str, Any]) -> dict[str, Any]:
    """The figures less those that are NaN or infinite, in maps and lists of them too."""
    return {name: _finite(value) for name, value in figures.items() if is_finite(value)}


def is_finite(value: object) -> bool:
    """Whether it is anything but NaN or infinity."""
    return not isinstance(value, float) or math.isfinite(value)


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return finite(value)
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value if is_finite(item)]
    return value
