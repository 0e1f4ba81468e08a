"""The generated part of docs/methods.md: what `fedsilo methods NAME` prints about every built-in method.

python -m hack.method_pages docs/methods.md
"""

from __future__ import annotations

import sys
from pathlib import Path

from fedsilo.cli.methods import describe
from fedsilo.methods import registry

MARKER = "<!-- Below this line: `make reference`. -->"


def main(argv: list[str] | None = None) -> int:
    """Rewrite the generated part of a page."""
    (name,) = sys.argv[1:] if argv is None else argv
    page = Path(name)
    page.write_text(page.read_text().partition(MARKER)[0] + MARKER + "\n" + sections())
    return 0


def sections() -> str:
    """One section for each method, by name; those of other packages, which may be installed beside, are theirs."""
    built_in = [registry.get(name) for name in registry.names() if registry.package_of(name) is None]
    return "".join(f"\n### {method.name}\n\n```text\n{describe(method)}\n```\n" for method in built_in)


if __name__ == "__main__":
    sys.exit(main())
