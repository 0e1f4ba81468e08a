"""The text of all pages for the page of search results, which quotes where the words stand.

Sphinx's script fetches each page that is found; from a disk a browser does not allow that.
"""

from __future__ import annotations

import json
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

TEXTS = "page_texts.js"


def load(app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: Any) -> None:
    """Load the texts on the page of search results, which alone needs them."""
    del templatename, context, doctree
    if pagename == "search":
        app.add_js_file(TEXTS)
        app.add_js_file("search_texts.js")


def write(app: Sphinx, failure: Exception | None) -> None:
    """Write the texts as a script, the only kind of file that a page from a disk may load."""
    if failure is None:
        texts = {name: text_of(app.env.get_doctree(name)) for name in sorted(app.env.found_docs)}
        script = f"const PAGE_TEXTS = {json.dumps(texts, ensure_ascii=False)};\n"
        (app.outdir / "_static" / TEXTS).write_text(script)


def text_of(page: nodes.document) -> str:
    """What a page says below its title, which a result shows anyway."""
    section = next(page.findall(nodes.section))
    return "\n".join(node.astext() for node in section.children[1:])
