"""The pages of the site in their order, which docs/README.md and the links between pages decide."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from hack.paths import ROOT

INDEX = "docs/README.md"
PAGE_SUFFIXES = (".md", ".ipynb")

_LINK = re.compile(r"\[([^\]]+)\]\((?![a-z]+:)([^)#\s]+)[^)\s]*\)")
_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def markdown(page: str) -> str:
    """The text of a page; a notebook's code becomes fenced blocks."""
    text = (ROOT / page).read_text()
    return notebook_as_markdown(text) if page.endswith(".ipynb") else text


def notebook_as_markdown(text: str) -> str:
    """The cells of a notebook as one Markdown text, without outputs."""
    cells = [(cell["cell_type"], "".join(cell["source"])) for cell in json.loads(text)["cells"]]
    return "\n\n".join(
        f"```python\n{source}\n```" if kind == "code" else source for kind, source in cells if source
    )


def links(page: str, text: str | None = None) -> list[tuple[str, str]]:
    """The relative links of a page: link text, and path from the root of the repository.

    :param text: the part of the page to look at; all of it if not given.
    """
    prose = _FENCE.sub("", markdown(page) if text is None else text)
    return [
        (" ".join(label.split()), os.path.normpath(Path(page).parent / target))
        for label, target in _LINK.findall(prose)
    ]


@cache
def sections() -> dict[str, list[tuple[str | None, str]]]:
    """The pages of each section of docs/README.md, with their titles.

    A link text that begins in lower case is part of a sentence: it is no title, and the page's own stands for it.
    """
    _, *parts = re.split(r"^## ", _FENCE.sub("", markdown(INDEX)), flags=re.MULTILINE)
    return {
        part.splitlines()[0]: [
            (label if label[0].isupper() else None, target)
            for label, target in links(INDEX, part)
            if target.endswith(PAGE_SUFFIXES) and (ROOT / target).exists()
        ]
        for part in parts
    }


@cache
def children() -> dict[str, list[str]]:
    """Pages that docs/README.md does not name, each under the first page that links to it or to its folder."""
    order = [INDEX, *dict.fromkeys(target for entries in sections().values() for _, target in entries)]
    placed = set(order)
    below: dict[str, list[str]] = {}
    for page in order:
        for target in dict.fromkeys(_pages_at(page)):
            if target not in placed:
                placed.add(target)
                order.append(target)
                below.setdefault(page, []).append(target)
    return below


def _pages_at(page: str) -> Iterator[str]:
    for _, target in links(page):
        if (ROOT / target).is_dir():
            yield from sorted(str(path.relative_to(ROOT)) for path in (ROOT / target).glob("*.md"))
        elif target.endswith(PAGE_SUFFIXES) and (ROOT / target).exists():
            yield target


@cache
def pages() -> list[str]:
    """Every page of the site."""
    named = [target for entries in sections().values() for _, target in entries]
    below = [target for targets in children().values() for target in targets]
    return list(dict.fromkeys([INDEX, *named, *below]))


@cache
def sources() -> set[str]:
    """Files and folders that pages link to and that are no pages: code, manifests, measurements."""
    linked = {target for page in pages() for _, target in links(page)}
    return {target for target in linked if (ROOT / target).exists()} - set(pages())


def no_pages() -> list[str]:
    """Folders of the repository without pages, and files elsewhere that are none though they look so."""
    folders = {page.partition("/")[0] for page in pages()}
    files = (path for folder in folders for path in (ROOT / folder).rglob("*.*"))
    return sorted(
        {path.name for path in ROOT.iterdir() if path.name not in folders}
        | {str(path.relative_to(ROOT)) for path in files if path.suffix in PAGE_SUFFIXES} - set(pages())
    )
