"""The configuration of Sphinx: the pages as they are, in the order of docs/README.md, readable from a disk."""

from __future__ import annotations

from pathlib import Path

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx

from hack.site import VERSION, literal_pages, navigation, search_texts

project = "fedsilo"
html_title = f"{project} {VERSION}"
extensions = ["myst_parser"]
root_doc = str(Path(navigation.INDEX).with_suffix(""))
source_suffix = {".md": "markdown", ".ipynb": "markdown"}
exclude_patterns = navigation.no_pages()

# As GitHub reads them: its Markdown, its anchors.
myst_disable_syntax = ["front_matter", "myst_block_break", "myst_line_comment", "myst_role", "myst_target"]
myst_enable_extensions = ["alert", "gfm_autolink", "strikethrough", "tasklist"]
myst_heading_anchors = 6
smartquotes = False
suppress_warnings = ["myst.header"]  # a page may go from its title to headings of the third level

html_theme = "furo"
pygments_dark_style = "github-dark"
html_static_path = ["style.css", "search_texts.js"]
html_css_files = ["style.css"]
html_copy_source = False
html_show_copyright = False


def read_notebook(app: Sphinx, docname: str, source: list[str]) -> None:
    """Give a notebook's cells to the parser as Markdown."""
    if str(app.env.doc2path(docname)).endswith(".ipynb"):
        source[0] = navigation.notebook_as_markdown(source[0])


def add_navigation(app: Sphinx, doctree: nodes.document) -> None:
    """Add what the pages do not say to Sphinx: which pages come after or below this one."""
    page = str(app.env.doc2path(app.env.docname, base=False))
    if page == navigation.INDEX:
        for caption, entries in navigation.sections().items():
            doctree.append(toctree(app.env.docname, entries, caption))
    if below := navigation.children().get(page):
        section = next(doctree.findall(nodes.section))
        section.append(toctree(app.env.docname, [(None, target) for target in below], None))


def toctree(docname: str, entries: list[tuple[str | None, str]], caption: str | None) -> nodes.Node:
    """A part of the navigation, as the directive of the same name makes it."""
    named = [(title, str(Path(target).with_suffix(""))) for title, target in entries]
    return addnodes.toctree(
        parent=docname,
        entries=named,
        includefiles=[name for _, name in named],
        caption=caption,
        rawcaption=caption,
        hidden=True,
        includehidden=False,
        titlesonly=True,
        glob=False,
        maxdepth=-1,
        numbered=0,
    )


def setup(app: Sphinx) -> None:
    """Connect what is particular to these pages, before Sphinx collects links and titles of a page."""
    app.connect("source-read", read_notebook)
    app.connect("doctree-read", add_navigation, priority=100)
    app.connect("doctree-read", literal_pages.lead_links_there, priority=100)
    app.connect("build-finished", literal_pages.write)
    app.connect("html-page-context", search_texts.load)
    app.connect("build-finished", search_texts.write)
