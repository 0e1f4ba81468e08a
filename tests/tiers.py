"""What `make test` leaves to `make test-all`."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def mark_thorough(cases: Iterable[Any], quick: Collection[Any]) -> list[Any]:
    """Parameters of a test, of which `make test` takes the quick ones only."""
    cases = list(cases)
    assert set(quick) <= set(cases), f"{set(quick) - set(cases)} are none of the cases"
    return [pytest.param(case, marks=() if case in quick else pytest.mark.thorough) for case in cases]
