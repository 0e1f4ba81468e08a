"""How a manifest names a Python object of one's own: `python:package.module:attribute`."""

from __future__ import annotations

import keyword
from typing import Final

PYTHON: Final = "python:"


def python_reference(name: str) -> tuple[str, str] | None:
    """Module and attribute of such a name; None where it has another form."""
    module, _, attribute = name.removeprefix(PYTHON).partition(":")
    parts = [*module.split("."), attribute]
    if all(part.isidentifier() and not keyword.iskeyword(part) for part in parts):
        return module, attribute
    return None
