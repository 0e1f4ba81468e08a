"""Which cases of a test every run tries."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest
from _pytest.mark import ParameterSet


def thorough_but(quick: Collection[Any], values: Iterable[Any]) -> list[ParameterSet]:
    """Values of one parameter; those that are not quick are thorough."""
    return [pytest.param(value, marks=[] if value in quick else [pytest.mark.thorough]) for value in values]
