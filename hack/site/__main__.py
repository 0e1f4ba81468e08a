"""Build the site of this version; `python -m hack.site`, or `make docs`."""

from __future__ import annotations

import shutil
import sys

from sphinx.cmd.build import build_main

from hack.paths import ROOT
from hack.site import VERSION
from hack.site.navigation import INDEX

FIRST_PAGE = f"""<!doctype html>
<meta charset="utf-8">
<title>fedsilo {VERSION}</title>
<meta http-equiv="refresh" content="0; url={INDEX.replace(".md", ".html")}">
"""
"""The content of index.html, which leads to the page that is the index in the repository too."""


def main() -> int:
    """Write the site into build/docs/<version> and print where it is; the exit code."""
    folder = ROOT / "build" / "docs" / VERSION
    cache = ROOT / "build" / "docs" / ".cache"
    options = ["--fail-on-warning", "--keep-going", "--fresh-env", "--quiet"]
    shutil.rmtree(folder, ignore_errors=True)
    places = ["-d", str(cache), "-c", str(ROOT / "hack" / "site"), str(ROOT), str(folder)]
    code = int(build_main([*options, *places]))
    if code == 0:
        (folder / "index.html").write_text(FIRST_PAGE)
        print(folder / "index.html")
    return code


if __name__ == "__main__":
    sys.exit(main())
