"""The pages of docs/methods: of every built-in method what its module says, and what `fedsilo methods NAME` prints.

python -m hack.method_pages docs/methods
"""

from __future__ import annotations

import inspect
import os
import re
import sys
import textwrap
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

from fedsilo.cli.methods import describe
from fedsilo.methods import registry
from fedsilo.methods.method import Method
from hack.paths import ROOT

MARKER = "<!-- Below this line: `make reference`. -->"

FOLDER = "docs/methods"
INDEX = "README.md"

INTRODUCTION = (
    "Each method has a page: what it does, where its code departs from paper or released code, and what "
    "`fedsilo methods NAME` prints, which is all that silos send, what is kept, and every setting. "
    "[Methods](../methods.md) says which to choose."
)

_PAGE = re.compile(r"\bdocs/([\w/-]+\.md(?:#[\w-]+)?)")
"""Another page, as docstrings name it."""


def main(argv: list[str] | None = None) -> int:
    """Write the folder anew; pages of methods that are gone go too."""
    (name,) = sys.argv[1:] if argv is None else argv
    folder = Path(name)
    written = pages()
    for old in folder.glob("*.md"):
        if old.name not in written:
            old.unlink()
    for page, text in written.items():
        (folder / page).write_text(text)
    return 0


def pages() -> dict[str, str]:
    """Name -> content of each page; methods of other packages, which may be installed beside, are theirs."""
    built_in = [registry.get(name) for name in registry.names() if registry.package_of(name) is None]
    return {INDEX: _index(built_in), **{f"{method.name}.md": _page(method) for method in built_in}}


def _index(methods: list[type[Method]]) -> str:
    """Both tiers, with a line for each method."""
    supported = [(method, method.use_when) for method in methods if method.use_when is not None]
    reference = [(method, _summary(method)) for method in methods if method.use_when is None]
    lines = ["# All methods", "", MARKER, "", *textwrap.wrap(INTRODUCTION, 115)]
    lines += ["", "## Supported", "", *_table("use it when", supported)]
    lines += ["", "## Reference", "", "As their papers have them, to compare with.", ""]
    lines += _table("what it is", reference)
    return "\n".join(lines) + "\n"


def _table(heading: str, rows: list[tuple[type[Method], str]]) -> Iterator[str]:
    yield from (f"| method | {heading} |", "|---|---|")
    for method, text in rows:
        yield f"| [{method.name}]({method.name}.md) | {text} |"


def _page(method: type[Method]) -> str:
    module = _module(method)
    source = module.replace(".", "/")
    source = source if (ROOT / source).is_dir() else f"{source}.py"
    link = os.path.relpath(source, FOLDER)
    text = _PAGE.sub(_link, _documentation(module))
    parts = [
        f"# {method.name}",
        MARKER,
        text,
        f"Code: [{source}]({link})",
        f"```text\n{describe(method)}\n```",
    ]
    return "\n\n".join(parts) + "\n"


def _link(match: re.Match[str]) -> str:
    target = os.path.relpath(f"docs/{match[1]}", FOLDER)
    return f"[{Path(match[1].partition('#')[0]).name}]({target})"


def _summary(method: type[Method]) -> str:
    return _documentation(_module(method)).partition("\n\n")[0].replace("\n", " ")


def _module(method: type[Method]) -> str:
    """The method's file, or its folder."""
    return ".".join(method.__module__.split(".")[:3])


def _documentation(module: str) -> str:
    text = inspect.getdoc(import_module(module))
    assert text is not None, f"{module} has no docstring"
    return text


if __name__ == "__main__":
    sys.exit(main())
