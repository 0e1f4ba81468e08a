"""The functions of torchmetrics, which takes seconds to import: only the tests that call one need to."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def __getattr__(name: str) -> Any:
    # pytest asks all that a module of tests has for `__wrapped__` and the like, in each worker.
    if name.startswith("_"):
        raise AttributeError(name)
    return getattr(import_module("torchmetrics.functional"), name)
