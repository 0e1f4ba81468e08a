"""How a manifest names a Python object of one's own: `python:package.module:attribute`."""

from __future__ import annotations

import keyword
from typing import Final

PYTHON: Final = "python:"


def python_reference(name: str) -> tuple[str, str] | None:
    """Module and attribute of such a name; None where it has another form."""
    module, _, attribute = name.removeprefix(PYTHON).partition(":")
    return (module, attribute) if is_dotted(module) and _is_name(attribute) else None


def is_dotted(name: str) -> bool:
    """Whether it is a name of Python's, or several with dots between them, as of a module."""
    return all(map(_is_name, name.split(".")))


def _is_name(text: str) -> bool:
    return text.isidentifier() and not keyword.iskeyword(text)
