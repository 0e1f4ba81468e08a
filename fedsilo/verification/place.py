"""Where the parts of a job's result lie: a run's directory, its aggregator's, or one that `kubectl fedsilo` made."""

from __future__ import annotations

import os
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path

from fedsilo.engine.provenance import FILE
from fedsilo.errors import ManifestInvalid
from fedsilo.files.json_files import Fields, read_with_digest
from fedsilo.files.plain_files import open_plain
from fedsilo.verification.other_places import PLACES, directory_text, file_text

_RUN_FIELDS: Fields = {"uid": str, "specDigest": str}

_MAX_RUN_BYTES, _MAX_RUN_VALUES = 1 << 20, 1000
"""Most bytes, and values, of what a run's directory says of itself: a handful of names and digests."""


@dataclass(frozen=True)
class Place:
    """The files that are verified together, all of them below one directory.

    :param root: the directory, below which no link is followed.
    :param kept: directory of the kept updates; it need not exist.
    :param run: uid and specification digest that the run's directory itself states; None elsewhere.
    """

    root: Path
    provenance: Path
    model: Path
    description: Path
    kept: Path
    run: tuple[str, str] | None

    def open(self, path: Path) -> BufferedReader:
        """One of the files, for reading.

        :raises OSError: when it is not there, cannot be read, or is no plain file below the directory.
        """
        return open_plain(path, self.root)


def find(directory: Path) -> Place:
    """The parts of the result in a directory.

    :raises ManifestInvalid: when it has no provenance; the message says why, as far as can be told.
    :raises FileDamaged: when the run's own file is damaged.
    """
    if not os.path.lexists(directory):
        raise ManifestInvalid(f"{directory}: there is no such directory; {PLACES}")
    if not directory.is_dir():
        raise ManifestInvalid(f"{directory}: {file_text(directory)}")
    run = read_with_digest(
        directory / "run.json", fields=_RUN_FIELDS, most=_MAX_RUN_BYTES, most_values=_MAX_RUN_VALUES
    )
    if run is not None and run.get("inProcess"):
        raise ManifestInvalid(
            f"{directory}: holds a run in one process, in which nothing is signed: there is no {FILE}, and nothing to "
            "verify; run the job without --in-process"
        )
    provenance = directory / FILE
    if not os.path.lexists(provenance):
        raise ManifestInvalid(f"{directory}: {directory_text(directory)}")
    inner = directory / "aggregator"
    return Place(
        root=directory,
        provenance=provenance,
        model=directory / "model.safetensors",
        description=directory / "model.json",
        kept=(inner if run is not None else directory) / "kept",
        run=None if run is None else (run["uid"], run["specDigest"]),
    )
