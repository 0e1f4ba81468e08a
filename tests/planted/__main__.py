"""Plant each fault in a copy of the working tree, and say whether its tests notice.

python -m tests.planted
python -m tests.planted --only 'a silo counts by its samples'
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.paths import ROOT
from tests.planted.faults import FAULTS, PlantedFault

FAILED_LINE = re.compile(r"^(FAILED|ERROR) tests/", re.MULTILINE)
"""How pytest names what failed; its exit status differs between one process and several."""


def copy_tree(target: Path) -> None:
    """Copy what git knows of the working tree."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    for name in filter(None, listed.decode().split("\0")):
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, target / name)


def is_noticed(fault: PlantedFault, tree: Path) -> bool:
    """Whether the tests fail with the fault.

    :raises SystemExit: when pytest could not run them.
    """
    path = tree / fault.file
    original = path.read_text()
    assert original.count(fault.before) == 1, f"{fault.file}: its text stands there once"
    path.write_text(original.replace(fault.before, fault.after))
    places = [tree / part for part in (".", "aggregator", "silo-agent", "operator")]
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-x",
        "-n",
        "2",
        "-p",
        "no:cacheprovider",
        *fault.noticed.split(),
    ]
    try:
        ended = subprocess.run(
            command,
            cwd=tree,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(map(str, places))},
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        path.write_text(original)
    if ended.returncode != 0 and not FAILED_LINE.search(ended.stdout):
        raise SystemExit(
            f"{fault.promise}: pytest ended with {ended.returncode}\n{ended.stdout[-2000:]}{ended.stderr}"
        )
    return ended.returncode != 0


def main() -> None:
    """Print a line per fault; end with 1 where one was not noticed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", metavar="PROMISE")
    chosen = parser.parse_args().only
    noticed = []
    with tempfile.TemporaryDirectory(prefix="fedsilo-planted-") as folder:
        copy_tree(Path(folder))
        for fault in FAULTS:
            if chosen is None or fault.promise == chosen:
                began = time.monotonic()
                noticed.append(is_noticed(fault, Path(folder)))
                how = "noticed" if noticed[-1] else "NOT NOTICED"
                print(f"{how} in {time.monotonic() - began:3.0f} s: {fault.promise}", flush=True)
    print(f"{sum(noticed)} of {len(noticed)} noticed")
    raise SystemExit(0 if all(noticed) else 1)


if __name__ == "__main__":
    main()
