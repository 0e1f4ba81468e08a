"""Packages of third parties, as tests install them: into a folder, without any network."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def install(package: Path, folder: Path) -> Path:
    """Install a package into a new folder below this one, which is returned."""
    source = folder / "source"
    source.mkdir()
    for path in package.iterdir():  # a copy, since building leaves files beside the source
        if path.is_file():
            (source / path.name).write_bytes(path.read_bytes())
    uv = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--offline", "--no-cache", "--no-deps"]
    options = ["--no-build-isolation", "--python", sys.executable, "--target", str(folder / "site")]
    subprocess.run([*uv, *options, str(source)], check=True, timeout=120)
    return folder / "site"
