"""Where the parts of a job's result lie: a run's directory, its aggregator's, or one that `kubectl fedsilo` made."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fedsilo.engine.provenance import FILE
from fedsilo.errors import ManifestInvalid
from fedsilo.json_files import Fields, read_with_digest

_RUN_FIELDS: Fields = {"uid": str, "specDigest": str}


@dataclass(frozen=True)
class Place:
    """The files that are verified together.

    :param kept: directory of the kept updates; it need not exist.
    :param run: uid and specification digest that the run's directory itself states; None elsewhere.
    """

    provenance: Path
    model: Path
    description: Path
    kept: Path
    run: tuple[str, str] | None


def find(directory: Path) -> Place:
    """The parts of the result in a directory.

    :raises ManifestInvalid: when it has no provenance; the message says why, as far as can be told.
    :raises FileDamaged: when the run's own file is damaged.
    """
    run = read_with_digest(directory / "run.json", fields=_RUN_FIELDS)
    if run is not None and run.get("inProcess"):
        raise ManifestInvalid(
            f"{directory}: holds a run in one process, in which nothing is signed: there is no {FILE}, and nothing to "
            "verify; run the job without --in-process"
        )
    provenance = directory / FILE
    if not provenance.is_file():
        raise ManifestInvalid(f"{directory}: has no {FILE}; {_why(directory)}")
    inner = directory / "aggregator"
    return Place(
        provenance=provenance,
        model=directory / "model.safetensors",
        description=directory / "model.json",
        kept=(inner if run is not None else directory) / "kept",
        run=None if run is None else (run["uid"], run["specDigest"]),
    )


def _why(directory: Path) -> str:
    if not directory.is_dir():
        return "there is no such directory"
    if any((folder / "state.json").is_file() for folder in (directory, directory / "aggregator")):
        return "its job has no model yet: verify it at its end"
    if (directory / "model.safetensors").is_file():
        return (
            "its model is one of a run in one process, in which nothing is signed, or was fetched without "
            "--with-provenance"
        )
    return "name the directory of a run, of its aggregator, or one that kubectl fedsilo model --with-provenance made"
