"""Markdown from values that anyone may have written: text, tables, blocks of YAML."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from fedsilo.api.json_yaml import JsonDumper

_SPECIAL_CHARACTERS = re.compile(r"([\\`*_\[\]<>|~&$])")

_BACKTICKS = re.compile(r"`+")


def escape_markdown(text: str) -> str:
    """The text so that a reader sees it as it is: no markup, no cell of a table ends in it."""
    return _SPECIAL_CHARACTERS.sub(r"\\\1", " ".join(text.split()))


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a table.

    :param heads: titles of the columns, in Markdown as are all cells.
    """
    lines = [heads, ["---"] * len(heads), *rows]
    return [f"| {' | '.join(line)} |" for line in lines]


def yaml_block(value: Mapping[str, Any]) -> list[str]:
    """Lines of a block that shows the value as YAML."""
    text = yaml.dump(dict(value), Dumper=JsonDumper, sort_keys=False, allow_unicode=True, width=100)
    longest = max(map(len, _BACKTICKS.findall(text)), default=0)
    fence = "`" * max(3, longest + 1)
    return [f"{fence}yaml", *text.splitlines(), fence]
