"""What torchmetrics computes. It takes seconds to import, which only the tests that call it need to spend."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def __getattr__(name: str) -> Any:
    return getattr(import_module("torchmetrics.functional"), name)
