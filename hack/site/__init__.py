"""The documentation as a site that is read offline: `make docs`."""

import tomllib

from hack.paths import ROOT

VERSION = str(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"])
"""The site's, and that of the program that it describes."""
