"""What a path is that holds nothing to verify, in words for the person who named it."""

from __future__ import annotations

import tarfile
import zipfile
from pathlib import Path

from fedsilo.engine.provenance import FILE
from fedsilo.files.locking import is_locked
from fedsilo.silo.audit_chain import FILE as AUDIT_LOG

PLACES = (
    "name the directory of a run, of its aggregator, or one that kubectl fedsilo model --with-provenance made"
)

_NAMED_RUNS = 5
"""Most runs of a directory that are named."""


def file_text(file: Path) -> str:
    """What a file is, and what to name in its place."""
    if (file.parent / FILE).is_file():
        return f"is a file; name its directory, {file.parent}"
    try:
        if zipfile.is_zipfile(file) or tarfile.is_tarfile(file):
            return "is an archive; unpack it, and name the directory that comes of it"
    except (OSError, EOFError):
        pass
    if file.suffix == ".safetensors":
        return (
            f"is a model alone, and what it was made from is in the {FILE} of its job; name the directory of its run, "
            "or fetch it with kubectl fedsilo model --with-provenance"
        )
    return f"is a file, and no directory; {PLACES}"


def directory_text(directory: Path) -> str:
    """Why a directory has no provenance, as far as can be told."""
    try:
        names = sorted(path.name for path in directory.iterdir())
    except OSError as error:
        return f"cannot be read ({error.strerror}); ask whom it belongs to, or {PLACES}"
    if not names:
        return f"is an empty directory; {PLACES}"
    return f"has no {FILE}; {_reason(directory, names)}"


def _reason(directory: Path, names: list[str]) -> str:
    jobs = (directory, directory / "aggregator")
    if any((folder / "state.json").is_file() for folder in jobs) or "run.json" in names:
        if any(map(is_locked, jobs)):
            return "its job has no model yet and still runs: verify it at its end"
        return "its job has no model yet: let it go on (fedsilo run --resume), and verify it at its end"
    if "model.safetensors" in names:
        return (
            "its model is one of a run in one process, in which nothing is signed, or was fetched without "
            "--with-provenance"
        )
    if "sweep.json" in names:
        return "it holds a sweep, whose runs are in one process, in which nothing is signed"
    if (directory / "audit" / AUDIT_LOG).is_file() or "agents" in names:
        return "it is a silo's, and fedsilo silo receipts shows what left that"
    if runs := [name for name in names if (directory / name / FILE).is_file()]:
        more = ", ..." if len(runs) > _NAMED_RUNS else ""
        return f"it holds other directories that have: name one, {', '.join(runs[:_NAMED_RUNS])}{more}"
    return PLACES
