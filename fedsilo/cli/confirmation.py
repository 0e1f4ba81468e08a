"""Asking the person at the terminal before something is done that others see."""

from __future__ import annotations

import sys

from fedsilo.errors import ManifestInvalid


def agreed(question: str, to: str = "decide") -> bool:
    """Whether the person says yes; anything else is a no.

    :param to: what is to be done, for a message about `--yes`.
    :raises ManifestInvalid: when there is nobody to ask.
    """
    if not sys.stdin.isatty():
        raise ManifestInvalid(f"standard input is no terminal, so nobody can be asked; add --yes to {to}")
    return input(f"\n{question} [y/N] ").strip().lower() in ("y", "yes")
