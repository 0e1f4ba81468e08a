"""Run a program of a file as `python FILE` does.

python -m tests.warm.script FILE
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path


def main() -> None:
    """Run it, with its folder before all others."""
    file = Path(sys.argv[1]).resolve()
    sys.path.insert(0, str(file.parent))
    sys.argv = sys.argv[1:]
    runpy.run_path(str(file), run_name="__main__")


if __name__ == "__main__":
    main()
