"""The option that names a silo's directory, for all commands that work on one."""

from __future__ import annotations

import argparse
from pathlib import Path

from fedsilo.institution.directory import SiloDirectory


def add_directory(parser: argparse.ArgumentParser) -> None:
    """Add the option `--dir`, the directory of the silo."""
    parser.add_argument("--dir", type=Path, required=True, metavar="DIR", help="directory of the silo")


def directory_of(args: argparse.Namespace) -> SiloDirectory:
    """The directory that was named."""
    path: Path = args.dir
    return SiloDirectory(path.resolve())
