"""The public dataset of a job that is folded again: its files lie where a person says, whatever the document names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fedsilo.engine.public_dataset import PublicDataset
from fedsilo.errors import ManifestInvalid
from fedsilo.verification.job import VerifiedJob
from fedsilo.verification.place import Place

OPTION = "--data"

WITHOUT_FILES = ("sklearn:", "python:")
"""How loaders begin that read what is installed, or run code that a person has allowed."""


def public_dataset(place: Place, job: VerifiedJob, folder: Path | None) -> PublicDataset | None:
    """The public dataset of a job, read from files below a folder; None where its method reads none.

    :raises ManifestInvalid: when the specification has no such dataset, names a place outside of the folder, or a
        download, or no folder is given.
    """
    if job.method.public_data is None:
        return None
    name = job.spec.aggregation.public_dataset
    what = f"{place.provenance}: spec.aggregation.publicDataset: {'null' if name is None else name}"
    held = next((dataset for dataset in job.spec.aggregator.datasets if dataset.name == name), None)
    if held is None:
        raise ManifestInvalid(
            f"{what}: is not among spec.aggregator.datasets, and method {job.method.name} learns from it; no such job "
            "can have run: ask whoever handed the chain over"
        )
    if held.loader.startswith(WITHOUT_FILES):
        return PublicDataset.of(job.method, Path())
    if folder is None:
        raise ManifestInvalid(
            f"{what}: is read from files; name the directory that they lie in with {OPTION} DIR"
        )
    if held.config.get("download"):
        raise ManifestInvalid(f"{what}: would be downloaded; a document alone lets nothing be fetched")
    root = folder.resolve()
    for text in _texts(held.config):
        if "\0" in text or not (root / text).resolve().is_relative_to(root):
            raise ManifestInvalid(
                f"{what}: {text!r}: lies outside of {folder}; name the directory with all its files with {OPTION}"
            )
    return PublicDataset.of(job.method, root)


def _texts(value: Any) -> Iterator[str]:
    """Every text in a configuration, for any of them may be a path."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(inner)
