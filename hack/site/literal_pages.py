"""Files of the repository that are no pages, as pages of the site, so that links to them lead somewhere offline."""

from __future__ import annotations

import html
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from string import Template

from docutils import nodes
from pygments.lexers import get_lexer_for_filename
from pygments.util import ClassNotFound
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.builders.html import StandaloneHTMLBuilder

from hack.paths import ROOT
from hack.site import navigation

FOLDER = "repository"
"""Where they are in the site; below it, a file has its path in the repository."""

PICTURES = (".png", ".svg")
"""Shown by the pages themselves; a link to one leads to a copy of it."""

PAGE = Template((Path(__file__).parent / "literal_page.html").read_text())
"""Not the theme's template: the navigation, which it computes anew for each page, would take minutes."""

HIGHLIGHTED_BYTES = 100_000
"""Larger files are measurements, whose colours would take longer than all pages."""


def lead_links_there(app: Sphinx, doctree: nodes.document) -> None:
    """Replace links to files and folders by links to their pages."""
    page = Path(str(app.env.doc2path(app.env.docname, base=False)))
    for node in [*doctree.findall(addnodes.download_reference), *doctree.findall(addnodes.pending_xref)]:
        if node.get("refdomain"):
            continue
        target = os.path.normpath(page.parent / node["reftarget"].partition("#")[0])
        if target in navigation.sources() and not target.endswith(PICTURES):
            address = app.builder.get_relative_uri(app.env.docname, f"{FOLDER}/{target}")
            node.replace_self(nodes.reference("", "", *node.children, refuri=address, internal=True))


def write(app: Sphinx, failure: Exception | None) -> None:
    """Write the page of each file that a page links to, and of each in a folder that a page links to."""
    if failure is not None:
        return
    for path in sorted(files()):
        place = app.outdir / FOLDER / f"{path}.html"
        place.parent.mkdir(parents=True, exist_ok=True)
        body = listing(app, path) if (ROOT / path).is_dir() else highlight(app, path)
        place.write_text(
            PAGE.substitute(
                title=html.escape(path),
                site=app.config.html_title,
                root="../" * (path.count("/") + 1),
                index=navigation.INDEX.replace(".md", ".html"),
                body=body,
            )
        )


@cache
def files() -> set[str]:
    """Files and folders that have such a page."""
    linked = navigation.sources()
    within = {entry for target in linked if (ROOT / target).is_dir() for entry in texts_below(target)}
    return {path for path in linked | within if not path.endswith(PICTURES)} - set(navigation.pages())


def texts_below(folder: str) -> Iterator[str]:
    """What is in a folder, at any depth, as far as it is text of the project's."""
    for path in (ROOT / folder).rglob("*"):
        name = str(path.relative_to(ROOT))
        if "__pycache__" not in path.parts and (path.is_dir() or path.suffix not in PICTURES):
            yield name


def highlight(app: Sphinx, path: str) -> str:
    """The text of a file, in colours if it has a language."""
    text = (ROOT / path).read_text()
    try:
        language = get_lexer_for_filename(path).aliases[0]
    except ClassNotFound:
        language = "text"
    if len(text) > HIGHLIGHTED_BYTES:
        return f"<pre>{html.escape(text)}</pre>"
    assert isinstance(app.builder, StandaloneHTMLBuilder)
    return str(app.builder.highlighter.highlight_block(text, language, force=True))


def listing(app: Sphinx, folder: str) -> str:
    """The names in a folder, each with a link to its page."""
    items = []
    for path in sorted((ROOT / folder).iterdir()):
        name = str(path.relative_to(ROOT))
        page = str(Path(name).with_suffix("")) if name in navigation.pages() else f"{FOLDER}/{name}"
        if name in files() or name in navigation.pages():
            address = app.builder.get_relative_uri(f"{FOLDER}/{folder}", page)
            items.append(f'<li><a href="{html.escape(address)}">{html.escape(path.name)}</a></li>')
    return f"<ul>{''.join(items)}</ul>"
