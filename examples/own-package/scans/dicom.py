"""DICOM series as volumes: a folder holds one series, and each of its files one slice."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

import numpy as np
import pydicom

SAME_POSITION_MM = 1e-3
"""Slices that are nearer to each other than this lie in one place."""

SAME_DIRECTION = 1e-3
"""Largest difference between the cosines of two directions that are the same."""

AXIAL = (1.0, 0.0, 0.0, 0.0, 1.0, 0.0)
"""The orientation of a series that states none; if it has another one, its slices seem to lie in one place."""

MONOCHROME = ("MONOCHROME1", "MONOCHROME2")


def read_dicom(folder: Path) -> np.ndarray:
    """One series, (slices, rows, columns), in the modality's own values, of a CT in Hounsfield units.

    Slices follow each other along the normal of their plane. Of MONOCHROME1, where small values are bright, the stored
    values are inverted.

    :raises ValueError: naming the file that is no slice of the same series as the others.
    """
    slices = {file: _read_slice(file) for file in _files(folder)}
    _require_one_series(slices)
    return np.stack([_values(file.name, slices[file]) for file in _in_order(slices)]).astype(np.float32)


def _files(folder: Path) -> list[Path]:
    entries = sorted(entry for entry in folder.iterdir() if not entry.name.startswith("."))
    for entry in entries:
        if entry.is_dir():
            raise ValueError(
                f"{entry.name} is a folder; give each series a folder of its own in that of its class"
            )
    if not entries:
        raise ValueError("holds no file; put the slices of a series there")
    return entries


def _read_slice(file: Path) -> pydicom.FileDataset:
    try:
        data = pydicom.dcmread(file)
    except Exception as error:  # what it raises on a broken file is not specified
        raise ValueError(f"{file.name} cannot be read as DICOM ({error}); repair or remove it") from error
    if "PixelData" not in data:
        raise ValueError(f"{file.name} holds no image; keep it elsewhere")
    if int(data.get("NumberOfFrames") or 1) != 1:
        raise ValueError(f"{file.name} holds {data.NumberOfFrames} frames; store each as a file of its own")
    if data.get("PhotometricInterpretation") not in MONOCHROME:
        raise ValueError(f"{file.name} is {data.get('PhotometricInterpretation')}; give slices in grey")
    return data


def _require_one_series(slices: Mapping[Path, pydicom.FileDataset]) -> None:
    (first, data), *others = slices.items()
    for file, other in others:
        for what, value, own in zip(_COMMON, _common_values(data), _common_values(other), strict=True):
            if value != own:
                raise ValueError(
                    f"{file.name} and {first.name} have {what} {own} and {value}; keep one series in a folder, without "
                    "localisers"
                )


_COMMON = ("SeriesInstanceUID", "rows and columns", "a localiser's ImageType")


def _common_values(data: pydicom.FileDataset) -> tuple[object, ...]:
    localiser = "LOCALIZER" in (data.get("ImageType") or ())
    return data.get("SeriesInstanceUID"), (data.Rows, data.Columns), localiser


def _in_order(slices: Mapping[Path, pydicom.FileDataset]) -> list[Path]:
    """The files along the normal of their plane."""
    if len(slices) == 1:  # such as a radiograph, which has no position
        return list(slices)
    oriented = any("ImageOrientationPatient" in data for data in slices.values())
    directions = {
        file: _vector(file.name, data, "ImageOrientationPatient", 6) if oriented else np.array(AXIAL)
        for file, data in slices.items()
    }
    first, plane = next(iter(directions.items()))
    for file, own in directions.items():
        if np.abs(own - plane).max() > SAME_DIRECTION:
            raise ValueError(
                f"{file.name} has another ImageOrientationPatient than {first.name}; keep one series in a folder, "
                "without localisers"
            )
    normal = np.cross(plane[:3], plane[3:])
    places = {
        file: float(_vector(file.name, data, "ImagePositionPatient", 3) @ normal)
        for file, data in slices.items()
    }
    order = sorted(places, key=places.__getitem__)
    for one, other in pairwise(order):
        if places[other] - places[one] < SAME_POSITION_MM:
            raise ValueError(
                f"{one.name} and {other.name} have one position ({places[one]:g} mm along the normal); keep one of "
                "them, and each phase or echo in a folder of its own"
            )
    return order


def _vector(name: str, data: pydicom.FileDataset, attribute: str, length: int) -> np.ndarray:
    value = data.get(attribute)
    if value is None or len(value) != length:
        raise ValueError(f"{name} has no {attribute}, so that its place in the volume is unknown; remove it")
    return np.array(value, np.float64)


def _values(name: str, data: pydicom.FileDataset) -> np.ndarray:
    """The modality's values, (rows, columns)."""
    if "ModalityLUTSequence" in data:
        raise ValueError(f"{name} has a modality table (ModalityLUTSequence); apply it first")
    try:
        stored = data.pixel_array
    except Exception as error:  # of whatever decodes it
        raise ValueError(f"{name} cannot be decoded ({error}); repair or remove it") from error
    if data.PhotometricInterpretation == "MONOCHROME1":
        if data.get("RescaleType") == "HU":
            raise ValueError(f"{name} is MONOCHROME1 in Hounsfield units; convert it to MONOCHROME2")
        # The largest value of its bits; of signed ones -1 takes 0 to -1 and the largest to the smallest.
        stored = (-1 if data.PixelRepresentation else (1 << data.BitsStored) - 1) - stored.astype(np.int64)
    return stored * _number(data, "RescaleSlope", 1.0) + _number(data, "RescaleIntercept", 0.0)


def _number(data: pydicom.FileDataset, attribute: str, absent: float) -> float:
    value = data.get(attribute)
    return absent if value is None or value == "" else float(value)
