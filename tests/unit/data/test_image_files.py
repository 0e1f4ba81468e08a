"""What an image file holds besides its pixels: how it is turned, further pages, and how its values are meant."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import ExifTags, Image, PngImagePlugin

from fedsilo.api.job import LearningTaskSpec
from fedsilo.data.image_configuration import ImageFolderConfig
from fedsilo.data.imagefolder import entries, image_features
from fedsilo.data.loaders import load
from fedsilo.errors import DataInvalid
from tests.unit.data.specs import data, dataset

PIXELS = np.random.RandomState(0).randint(0, 256, (2, 3)).astype(np.uint8)
"""A grey picture as a person sees it, three pixels wide and two high."""

STORED_FORMS: dict[int, Callable[[np.ndarray], np.ndarray]] = {
    1: lambda x: x,
    2: lambda x: x[:, ::-1],
    3: lambda x: x[::-1, ::-1],
    4: lambda x: x[::-1],
    5: lambda x: x.T,
    6: lambda x: np.rot90(x, 1),
    7: lambda x: x[::-1, ::-1].T,
    8: lambda x: np.rot90(x, -1),
}
"""EXIF's number -> how a camera stores an upright picture, by EXIF 2.32, section 4.6.5."""


def store(path: Path, pixels: np.ndarray, orientation: int | None = None, **options: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    exif = Image.Exif()
    if orientation is not None:
        exif[ExifTags.Base.Orientation] = orientation
        options["exif"] = exif
    Image.fromarray(np.ascontiguousarray(pixels)).save(path, **options)


def read(root: Path, bits: int = 8, channels: int = 1) -> np.ndarray:
    """The only image of a folder, (channels, 2, 3)."""
    config = ImageFolderConfig.model_validate({"path": ".", "bits": bits})
    found = image_features(root, list(entries(root / "c")), config, (channels, 2, 3))
    assert isinstance(found, np.ndarray)
    image: np.ndarray = found[0]
    return image


def refusal(root: Path, bits: int = 8) -> str:
    with pytest.raises(DataInvalid) as caught:
        read(root, bits)
    message = str(caught.value)
    assert message.startswith("'c/") and "\n" not in message and ";" in message
    return message


@pytest.mark.parametrize("orientation", STORED_FORMS)
@pytest.mark.parametrize("ending", ["png", "tif", "webp", "jpg"])
def test_a_picture_is_read_as_its_exif_turns_it(tmp_path: Path, ending: str, orientation: int) -> None:
    store(tmp_path / f"c/0.{ending}", STORED_FORMS[orientation](PIXELS), orientation, quality=100)
    assert np.abs(read(tmp_path)[0].astype(int) - PIXELS).max() <= (3 if ending in ("jpg", "webp") else 0)


def test_a_picture_of_16_bits_is_turned_too(tmp_path: Path) -> None:
    deep = PIXELS.astype(np.uint16) * 200
    store(tmp_path / "c/0.png", STORED_FORMS[6](deep), 6)
    assert np.array_equal(read(tmp_path, bits=16)[0], deep / np.float32(65535))


def test_a_mask_is_turned_as_its_own_exif_says(tmp_path: Path) -> None:
    store(tmp_path / "images/0.png", STORED_FORMS[6](PIXELS), 6)
    store(tmp_path / "images/1.png", PIXELS)
    store(tmp_path / "masks/0.png", PIXELS % 3)
    palette = Image.fromarray(np.ascontiguousarray(STORED_FORMS[8](PIXELS % 3)))
    palette.putpalette([0, 0, 9, 0, 9, 0, 9, 0, 0])
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 8
    palette.save(tmp_path / "masks/1.png", exif=exif)
    task = LearningTaskSpec(name="segmentation")
    found = load(dataset("maskfolder", path="."), data(1, 2, 3, classes=3), root=tmp_path, task=task)
    assert np.array_equal(found.labels, [PIXELS % 3] * 2)
    assert np.array_equal(found.features[:, 0], [PIXELS] * 2)


def test_an_orientation_that_cannot_be_read_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "c").mkdir()
    Image.fromarray(PIXELS).save(tmp_path / "c/0.png", exif=b"Exif\0\0no TIFF at all")
    assert np.array_equal(read(tmp_path)[0], PIXELS)


def test_an_orientation_behind_the_pixels_counts(tmp_path: Path) -> None:
    store(tmp_path / "c/0.png", STORED_FORMS[3](PIXELS), 3)
    content = (tmp_path / "c/0.png").read_bytes()
    begin = content.index(b"eXIf") - 4
    end = begin + 12 + int.from_bytes(content[begin : begin + 4])
    closing = content.index(b"IEND") - 4
    (tmp_path / "c/0.png").write_bytes(
        content[:begin] + content[end:closing] + content[begin:end] + content[closing:]
    )
    assert np.array_equal(read(tmp_path)[0], PIXELS)


@pytest.mark.parametrize("ending", ["tif", "gif", "png", "webp"])
def test_a_file_of_several_pictures_is_refused(tmp_path: Path, ending: str) -> None:
    further = [Image.fromarray(PIXELS * number) for number in (0, 3, 5)]
    store(tmp_path / f"c/0.{ending}", PIXELS, save_all=True, append_images=further)
    assert f"'c/0.{ending}' holds 4 pages or frames, and an example is one image; " in refusal(tmp_path)


def test_a_mask_of_several_pages_is_refused(tmp_path: Path) -> None:
    store(tmp_path / "images/0.png", PIXELS)
    store(tmp_path / "masks/0.tif", PIXELS % 3, save_all=True, append_images=[Image.fromarray(PIXELS)])
    task = LearningTaskSpec(name="segmentation")
    with pytest.raises(DataInvalid, match=r"'masks/0\.tif' holds 2 pages or frames"):
        load(dataset("maskfolder", path="."), data(1, 2, 3, classes=3), root=tmp_path, task=task)


def test_a_preview_is_no_second_picture(tmp_path: Path) -> None:
    preview = Image.fromarray(PIXELS[:1])
    preview.encoderinfo = {"tiffinfo": {254: 1}}
    store(tmp_path / "c/0.tif", PIXELS, save_all=True, append_images=[preview])
    assert np.array_equal(read(tmp_path)[0], PIXELS)
    (tmp_path / "c/0.tif").unlink()
    store(tmp_path / "c/0.jpg", PIXELS, format="MPO", quality=100, save_all=True, append_images=[preview])
    assert np.abs(read(tmp_path)[0].astype(int) - PIXELS).max() <= 3


def test_a_slide_is_said_to_be_too_large(tmp_path: Path) -> None:
    def chunk(kind: bytes, content: bytes) -> bytes:
        file = io.BytesIO()
        PngImagePlugin.putchunk(file, kind, content)
        return file.getvalue()

    (tmp_path / "c").mkdir()
    header = (40_000).to_bytes(4) + (30_000).to_bytes(4) + bytes([8, 0, 0, 0, 0])
    (tmp_path / "c/0.png").write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", b""))
    message = refusal(tmp_path)
    assert "'c/0.png' is too large to be decoded at once (Image size (1200000000 pixels)" in message
    assert message.endswith("; cut it into tiles, or store it smaller")


def test_small_values_that_are_bright_are_turned_round(tmp_path: Path) -> None:
    for pixels, bits in ((PIXELS, 8), (PIXELS.astype(np.uint16) * 200, 16)):
        # Pillow writes 8 bits turned round, and 16 as they are.
        stored = pixels if bits == 8 else 65535 - pixels
        store(tmp_path / "c/0.tif", stored, tiffinfo={262: 0})
        found = read(tmp_path, bits)[0]
        assert np.array_equal(found if bits == 8 else np.rint(found * 65535), pixels)


def test_signed_values_of_8_bits_are_refused(tmp_path: Path) -> None:
    store(tmp_path / "c/0.tif", PIXELS, tiffinfo={339: 2})
    assert "has signed values of 8 bits, which Pillow reads as 0 to 255; convert it" in refusal(tmp_path)


@pytest.mark.parametrize("mode", ["1", "P", "LA", "RGB", "RGBA", "CMYK"])
def test_a_grey_picture_has_the_same_pixels_in_every_mode(tmp_path: Path, mode: str) -> None:
    pixels = np.where(PIXELS > 128, 255, 0).astype(np.uint8) if mode == "1" else PIXELS
    (tmp_path / "c").mkdir()
    Image.fromarray(pixels).convert(mode).save(tmp_path / "c/0.tif")
    for channels in (1, 3):
        assert np.array_equal(read(tmp_path, channels=channels), [pixels] * channels)
