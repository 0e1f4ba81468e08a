"""The option of every command that looks at a document: what code that it names may be imported."""

from __future__ import annotations

import argparse

from fedsilo.api.allowed_imports import OPTION


def add_allow_import(parser: argparse.ArgumentParser) -> None:
    """Add the option that lets a command import code named in a manifest. `fedsilo.cli.commands` applies it while the
    command runs.
    """
    parser.add_argument(
        OPTION,
        action="append",
        default=[],
        metavar="MODULE",
        help="import this where the document names it: package.module, or package.module:attribute; nothing by default",
    )
