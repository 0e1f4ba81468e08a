"""DICOM series and NIfTI volumes of examples/own-package, as archives hold them: read rightly, or refused by file."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import pydicom
import pytest
from pydicom.dataset import FileMetaDataset
from pydicom.uid import CTImageStorage, ExplicitVRLittleEndian, generate_uid

from tests.unit.data.test_own_package import CLASSES, installed_package, write_dicom, write_nifti

__all__ = ["installed_package"]

PIXELS = np.arange(16, dtype=np.uint16).reshape(4, 4)
SERIES = generate_uid()
AXIAL = [1, 0, 0, 0, 1, 0]
SAGITTAL = [0, 1, 0, 0, 0, -1]
OBLIQUE = [0.8, 0.6, 0, 0, 0, -1]
"""Its normal is (-0.6, 0.8, 0)."""


def write(folder: Path, name: str, pixels: np.ndarray = PIXELS, **attributes: Any) -> None:
    """One slice of 12 bits; an attribute that is None is left out."""
    folder.mkdir(exist_ok=True, parents=True)
    one, meta = pydicom.Dataset(), FileMetaDataset()
    meta.TransferSyntaxUID, meta.MediaStorageSOPClassUID = ExplicitVRLittleEndian, CTImageStorage
    meta.MediaStorageSOPInstanceUID = generate_uid()
    one.file_meta, one.SOPClassUID, one.SOPInstanceUID = meta, CTImageStorage, meta.MediaStorageSOPInstanceUID
    present = {
        "SeriesInstanceUID": SERIES,
        "ImageOrientationPatient": AXIAL,
        "ImagePositionPatient": [0, 0, 0],
        "PhotometricInterpretation": "MONOCHROME2",
        "Rows": pixels.shape[0],
        "Columns": pixels.shape[1],
        "SamplesPerPixel": 1,
        "BitsAllocated": 16,
        "BitsStored": 12,
        "HighBit": 11,
        "PixelRepresentation": int(pixels.dtype == np.int16),
        "PixelData": pixels.tobytes(),
    } | attributes
    for attribute, value in present.items():
        if value is not None:
            setattr(one, attribute, value)
    one.save_as(folder / name, enforce_file_format=True)


def read_series(folder: Path) -> np.ndarray:
    found: np.ndarray = importlib.import_module("scans.dicom").read_dicom(folder)
    return found


@pytest.mark.parametrize("pixels", [PIXELS, PIXELS.astype(np.int16) - 2048])
@pytest.mark.parametrize("rescale", [{}, {"RescaleSlope": 2, "RescaleIntercept": -7, "RescaleType": "US"}])
def test_small_values_that_are_bright_are_inverted(
    tmp_path: Path, pixels: np.ndarray, rescale: dict[str, Any]
) -> None:
    inverted = (-1 if pixels.dtype == np.int16 else 4095) - pixels
    write(tmp_path / "m1", "0", inverted, PhotometricInterpretation="MONOCHROME1", **rescale)
    write(tmp_path / "m2", "0", pixels, **rescale)
    assert np.array_equal(read_series(tmp_path / "m1"), read_series(tmp_path / "m2"))


@pytest.mark.parametrize(
    ("orientation", "step"), [(AXIAL, [0, 0, 1]), (SAGITTAL, [-1, 0, 0]), (OBLIQUE, [-0.6, 0.8, 0])]
)
def test_slices_follow_each_other_along_their_normal(
    tmp_path: Path, orientation: list[float], step: list[float]
) -> None:
    for number, place in enumerate([30, 0, 20, 10, 40]):
        position = [place * part + 5 for part in step]
        plane = {"ImageOrientationPatient": orientation, "ImagePositionPatient": position}
        write(tmp_path, f"IM{number}", np.full((4, 4), place, np.uint16), **plane)
    assert read_series(tmp_path)[:, 0, 0].tolist() == [0, 10, 20, 30, 40]


def test_a_radiograph_needs_no_position_and_no_rescaling(tmp_path: Path) -> None:
    absent: dict[str, Any] = {"ImageOrientationPatient": None, "ImagePositionPatient": None}
    write(tmp_path, "0.dcm", RescaleSlope="", RescaleIntercept="", **absent)
    (tmp_path / ".DS_Store").write_bytes(b"hidden")
    assert np.array_equal(read_series(tmp_path), PIXELS[np.newaxis])


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"ImagePositionPatient": None}, "b has no ImagePositionPatient, so that its place in the volume is"),
        ({"ImagePositionPatient": ""}, "b has no ImagePositionPatient"),
        ({"ImageOrientationPatient": None}, "b has no ImageOrientationPatient"),
        (
            {"ImageOrientationPatient": SAGITTAL},
            "b has another ImageOrientationPatient than a; keep one series",
        ),
        (
            {"ImagePositionPatient": [0, 0, 0]},
            r"a and b have one position \(0 mm along the normal\); keep one",
        ),
        ({"SeriesInstanceUID": "1.2.3"}, "b and a have SeriesInstanceUID 1.2.3 and .*; keep one series in a"),
        (
            {"ImageType": ["ORIGINAL", "PRIMARY", "LOCALIZER"]},
            "b and a have a localiser's ImageType True and",
        ),
        ({"Rows": 2, "Columns": 8}, r"b and a have rows and columns \(2, 8\) and \(4, 4\); keep"),
        ({"PixelData": None}, "b holds no image; keep it elsewhere"),
        ({"PixelData": b"short"}, "b cannot be decoded"),
        ({"NumberOfFrames": 3}, "b holds 3 frames; store each as a file of its own"),
        ({"PhotometricInterpretation": "PALETTE COLOR"}, "b is PALETTE COLOR; give slices in grey"),
        (
            {"PhotometricInterpretation": "MONOCHROME1", "RescaleType": "HU"},
            "b is MONOCHROME1 in Hounsfield units; convert it",
        ),
        ({"ModalityLUTSequence": [pydicom.Dataset()]}, "b has a modality table"),
    ],
)
def test_a_file_that_is_no_slice_of_the_series_is_named(
    tmp_path: Path, attributes: dict[str, Any], message: str
) -> None:
    write(tmp_path, "a")
    write(tmp_path, "b", **({"ImagePositionPatient": [0, 0, 5]} | attributes))
    with pytest.raises(ValueError, match=f"^{message}"):
        read_series(tmp_path)


def add_text(folder: Path) -> None:
    (folder / "notes.txt").write_text("not a slice")


def add_folder(folder: Path) -> None:
    (folder / "second").mkdir()


def remove_slice(folder: Path) -> None:
    (folder / "a").unlink()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (add_text, "notes.txt cannot be read as DICOM .*; repair or remove it"),
        (add_folder, "second is a folder; give each series a folder of its own"),
        (remove_slice, "holds no file; put the slices of a series there"),
    ],
)
def test_a_folder_that_is_no_series_is_refused(
    tmp_path: Path, change: Callable[[Path], None], message: str
) -> None:
    write(tmp_path, "a")
    change(tmp_path)
    with pytest.raises(ValueError, match=f"^{message}"):
        read_series(tmp_path)


def list_volumes(kind: str, root: Path) -> tuple[Any, np.ndarray, list[str]]:
    found: tuple[Any, np.ndarray, list[str]] = getattr(importlib.import_module("scans.loaders"), kind)(
        str(root)
    )
    return found


def test_one_volume_in_four_dimensions_is_a_volume_and_several_are_refused(tmp_path: Path) -> None:
    volume = np.arange(24, dtype=np.int16).reshape(2, 3, 4)
    for name, points in (("one", 1), ("two", 2)):
        folder = tmp_path / name / CLASSES[0]
        folder.mkdir(parents=True)
        stored = np.repeat(volume.T[..., np.newaxis], points, axis=-1)
        nibabel.save(nibabel.Nifti1Image(stored, np.eye(4)), folder / "0.nii")  # type: ignore[no-untyped-call]
        (folder / "0.nii.json").write_text("{}")
    volumes, _, _ = list_volumes("nifti", tmp_path / "one")
    assert np.array_equal(volumes.read(np.array([0]))[0], volume)
    with pytest.raises(
        ValueError, match=r"two/lesion/0.nii: has shape \(4, 3, 2, 2\), and an example is one"
    ):
        list_volumes("nifti", tmp_path / "two")


@pytest.mark.parametrize(("kind", "misplaced"), [("nifti", "a folder"), ("dicom", "no folder")])
def test_volumes_that_would_be_passed_over_are_refused(tmp_path: Path, kind: str, misplaced: str) -> None:
    write_nifti(tmp_path, np.zeros((2, 2, 2), np.int16), 0, 0)
    write_dicom(tmp_path, np.zeros((2, 2, 2), np.int16), 0, 1)
    with pytest.raises(ValueError, match=f"lesion/.* is {misplaced}; put volumes directly into"):
        list_volumes(kind, tmp_path)


def test_a_volume_that_is_damaged_later_is_named(tmp_path: Path) -> None:
    for number in range(2):
        write(tmp_path / CLASSES[0] / f"series{number}", "0")
    volumes, labels, classes = list_volumes("dicom", tmp_path)
    assert (labels.tolist(), classes) == ([0, 0], [CLASSES[0]])
    (tmp_path / CLASSES[0] / "series1" / "0").write_bytes(b"torn")
    with pytest.raises(ValueError, match="lesion/series1: 0 cannot be read as DICOM"):
        volumes.read(np.array([0, 1]))
