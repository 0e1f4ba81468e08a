"""Volumes in medical formats, from folders with one sub-folder for each class; each is read when it is needed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import nibabel
import numpy as np
import pydicom


def read_nifti(file: Path) -> np.ndarray:
    """One volume, (depth, height, width): the axes of the patient, whatever those of the scanner were."""
    image = nibabel.as_closest_canonical(nibabel.load(file))
    return np.asarray(image.dataobj, np.float32).transpose(2, 1, 0)


def read_dicom(folder: Path) -> np.ndarray:
    """One series, (slices, rows, columns), in the modality's own values, of a CT in Hounsfield units."""
    slices = [pydicom.dcmread(file) for file in folder.glob("*.dcm")]
    slices.sort(key=lambda each: float(each.ImagePositionPatient[2]))
    values = [
        each.pixel_array * float(each.get("RescaleSlope", 1)) + float(each.get("RescaleIntercept", 0))
        for each in slices
    ]
    return np.stack(values).astype(np.float32)


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
            volume = self.read_one(self.paths[item])
            if volume.shape != self.shape[1:]:
                raise ValueError(f"{self.paths[item]} has shape {volume.shape}, not {self.shape[1:]}")
            found[place] = volume
        return found


def nifti(path: str) -> tuple[Volumes, np.ndarray, list[str]]:
    """The files `path/<class>/*.nii` and `*.nii.gz`."""
    return _classes(Path(path), "*.nii*", read_nifti)


def dicom(path: str) -> tuple[Volumes, np.ndarray, list[str]]:
    """Volumes of the series `path/<class>/<series>/*.dcm`, their labels, and the names of the classes."""
    return _classes(Path(path), "*/", read_dicom)


def _classes(
    root: Path, pattern: str, read_one: Callable[[Path], np.ndarray]
) -> tuple[Volumes, np.ndarray, list[str]]:
    names = sorted(folder.name for folder in root.iterdir() if folder.is_dir())
    found = [
        (path, label) for label, name in enumerate(names) for path in sorted((root / name).glob(pattern))
    ]
    if not found:
        raise ValueError(f"{root} has no {pattern} in the folder of a class")
    paths = [path for path, _ in found]
    volumes = Volumes(paths, read_one, (len(paths), *read_one(paths[0]).shape))
    return volumes, np.array([label for _, label in found]), names
