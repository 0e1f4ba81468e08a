"""Golden files of sentences: under each name, what a person reads."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

_DIRECTORY = Path(__file__).with_name("golden")


def sentences(name: str) -> dict[str, str]:
    """What stands under each name of a golden file."""
    blocks = (_DIRECTORY / f"{name}.txt").read_text().split("# ")[1:]
    return {title: text.strip() for title, _, text in (block.partition("\n") for block in blocks)}


def golden_text(found: Mapping[str, str]) -> str:
    """The file that holds these."""
    return "\n".join(f"# {title}\n{text}\n" for title, text in found.items())
