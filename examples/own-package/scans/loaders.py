"""Volumes in medical formats, from folders with one sub-folder for each class; each is read when it is needed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import nibabel
import numpy as np

from scans.dicom import read_dicom

NIFTI_ENDINGS = (".nii", ".nii.gz")


def read_nifti(file: Path) -> np.ndarray:
    """One volume, (depth, height, width): the axes of the patient, whatever those of the scanner were."""
    image = nibabel.squeeze_image(nibabel.load(file))
    if len(image.shape) != 3:
        raise ValueError(f"has shape {image.shape}, and an example is one volume; store each by itself")
    return np.asarray(nibabel.as_closest_canonical(image).dataobj, np.float32).transpose(2, 1, 0)


@dataclass(frozen=True)
class Volumes:
    """Volumes that stay in their files. All must have the shape of the first."""

    paths: Sequence[Path]
    read_one: Callable[[Path], np.ndarray]
    shape: tuple[int, ...]

    @property
    def dtype(self) -> np.dtype:
        """Type of the volumes' values."""
        return np.dtype(np.float32)

    def read(self, items: np.ndarray) -> np.ndarray:
        """The volumes of these numbers, (n, depth, height, width); called by several threads at once."""
        found = np.empty((len(items), *self.shape[1:]), self.dtype)
        for place, item in enumerate(items):
            volume = _read_volume(self.read_one, self.paths[item])
            if volume.shape != self.shape[1:]:
                raise ValueError(f"{self.paths[item]} has shape {volume.shape}, not {self.shape[1:]}")
            found[place] = volume
        return found


def nifti(path: str) -> tuple[Volumes, np.ndarray, list[str]]:
    """Volumes of the files `path/<class>/*.nii` and `*.nii.gz`, their labels, and the names of the classes."""

    def files(folder: Path) -> list[Path]:
        return [entry for entry in _entries(folder, folders=False) if entry.name.endswith(NIFTI_ENDINGS)]

    return _classes(Path(path), files, read_nifti)


def dicom(path: str) -> tuple[Volumes, np.ndarray, list[str]]:
    """Volumes of the series `path/<class>/<series>/*`, their labels, and the names of the classes."""
    return _classes(Path(path), lambda folder: _entries(folder, folders=True), read_dicom)


def _classes(
    root: Path, examples: Callable[[Path], list[Path]], read_one: Callable[[Path], np.ndarray]
) -> tuple[Volumes, np.ndarray, list[str]]:
    folders = [entry for entry in sorted(root.iterdir()) if entry.is_dir() and not entry.name.startswith(".")]
    found = [(path, label) for label, folder in enumerate(folders) for path in examples(folder)]
    if not found:
        raise ValueError(f"{root} has no volume in the folder of a class")
    paths = [path for path, _ in found]
    volumes = Volumes(paths, read_one, (len(paths), *_read_volume(read_one, paths[0]).shape))
    return volumes, np.array([label for _, label in found]), [folder.name for folder in folders]


def _entries(folder: Path, *, folders: bool) -> list[Path]:
    """What is in the folder of a class but for hidden entries; all folders, or none."""
    entries = sorted(entry for entry in folder.iterdir() if not entry.name.startswith("."))
    for entry in entries:
        if entry.is_dir() != folders:
            raise ValueError(
                f"{entry} is {'no' if folders else 'a'} folder; put volumes directly into {folder}"
            )
    return entries


def _read_volume(read_one: Callable[[Path], np.ndarray], path: Path) -> np.ndarray:
    try:
        return read_one(path)
    except Exception as error:  # of whatever decodes it
        raise ValueError(f"{path}: {error}") from error
