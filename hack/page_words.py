"""Counts the words of the hand-written pages: `python -m hack.page_words`.

Hand-written are the README and docs/ without results, up to the line below which a page is generated. Prose is what
stands outside of code blocks, without the bars of tables; a reader of a page reads it, and looks code up.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from hack.combination_pages import MARKER

ROOT = Path(__file__).parents[1]

BEGIN_OF_MARKER = MARKER.partition(":")[0]
"""Text that every page's line above its generated part begins with."""

CODE_BLOCK = re.compile(r"^ *```.*?^ *```", re.DOTALL | re.MULTILINE)


def hand_written_pages() -> Iterator[tuple[str, str]]:
    """Path from the project's folder, and hand-written text, of every page that has some."""
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        path = page.relative_to(ROOT)
        if "results" not in path.parts:
            yield path.as_posix(), page.read_text().partition(BEGIN_OF_MARKER)[0]


def count_words(text: str) -> tuple[int, int]:
    """Words of a page, and those among them that are prose."""
    prose = (word for word in CODE_BLOCK.sub("", text).split() if re.search(r"\w", word))
    return len(text.split()), sum(1 for _ in prose)


def main() -> int:
    """Print the words of each page, and of all."""
    counts = [(path, *count_words(text)) for path, text in hand_written_pages()]
    for path, words, prose in sorted(counts, key=lambda count: -count[1]):
        print(f"{words:7,} {prose:7,} {path}")
    print(
        f"{sum(count[1] for count in counts):7,} {sum(count[2] for count in counts):7,} words, and of prose, in all"
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
