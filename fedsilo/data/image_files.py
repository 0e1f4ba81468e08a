"""Image files as Pillow opens them: one picture in each, upright, its values as they are meant."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from PIL import ExifTags, Image, ImageOps
from PIL.TiffImagePlugin import PHOTOMETRIC_INTERPRETATION, SAMPLEFORMAT, TiffImageFile

from fedsilo.api.text import first_line
from fedsilo.errors import DataInvalid, quoted_value

FORMATS_OF_ONE_PICTURE = ("MPO", "PSD")
"""Formats whose further frames belong to the picture that Pillow opens: a camera's previews, layers."""

SUBFILE_TYPE = 254
"""TIFF's tag of what a page is in its file."""

PART_OF_ANOTHER_PAGE = 0b101
"""Bits of that tag which say that a page is another one's reduced copy, or the mask of its transparency."""

SIGNED_SAMPLES = 2
"""TIFF's number of a sample format with negative values."""


@contextmanager
def open_image(file: Path, root: Path) -> Iterator[Image.Image]:
    """The one picture of a file, as stored; no pixel is decoded before it is asked for.

    What goes wrong with the picture inside of the `with` is named as what goes wrong with opening it.

    :param root: folder that errors name the file from.
    :raises DataInvalid: it is no image, is too large, or holds several pictures.
    :raises PermissionError: it may not be read.
    """
    name = quoted_file_name(file.relative_to(root))
    try:
        # Given a path, Pillow maps some files: that reads a TIFF of another orientation wrongly, and one that becomes
        # shorter meanwhile ends the process.
        with file.open("rb") as opened, Image.open(opened) as stored:
            _require_one_picture(stored, name)
            yield stored
    except (DataInvalid, PermissionError, MemoryError):
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise DataInvalid(
            f"{name} is too large to be decoded at once ({quoted_value(first_line(error))}); cut it into tiles, or "
            "store it smaller"
        ) from error
    except Exception as error:  # what Pillow's decoders raise on a broken file is not specified
        raise DataInvalid(
            f"{name} cannot be decoded as an image ({quoted_value(first_line(error))}); repair or remove it"
        ) from error


def turn_upright(stored: Image.Image) -> None:
    """Decode a picture, and turn it as its EXIF orientation says; one that cannot be read says nothing."""
    stored.load()
    if _orientation(stored) != 1:
        ImageOps.exif_transpose(stored, in_place=True)


def upright_size(stored: Image.Image) -> tuple[int, int]:
    """Width and height of a picture once it is upright, as the header says."""
    width, height = stored.size
    # Pillow turns the pixels of a TIFF, and its size, by itself.
    across = not isinstance(stored, TiffImageFile) and _orientation(stored) in (5, 6, 7, 8)
    return (height, width) if across else (width, height)


def is_white_at_zero(stored: Image.Image) -> bool:
    """Whether small values are bright, as TIFF permits; of 8 bits and less Pillow has turned them round."""
    return isinstance(stored, TiffImageFile) and stored.tag_v2.get(PHOTOMETRIC_INTERPRETATION) == 0


def quoted_file_name(file: str | Path) -> str:
    """The file of an example as an error names it, which may say whose it is."""
    return quoted_value(repr(str(file)))


def _orientation(stored: Image.Image) -> int:
    """EXIF's number from 1 to 8; 1 is upright."""
    try:
        # Not PNG's own `getexif`, which decodes the pixels in search of what may follow them.
        return int(Image.Image.getexif(stored).get(ExifTags.Base.Orientation, 1))
    except Exception:  # what Pillow raises on broken EXIF is not specified
        return 1


def _require_one_picture(stored: Image.Image, name: str) -> None:
    if (pictures := _pictures(stored)) > 1:
        raise DataInvalid(
            f"{name} holds {pictures} pages or frames, and an example is one image; store each in a file of its own, "
            "or read them as a volume with a python: loader"
        )
    if (
        isinstance(stored, TiffImageFile)
        and stored.mode == "L"
        and SIGNED_SAMPLES in stored.tag_v2.get(SAMPLEFORMAT, ())
    ):
        raise DataInvalid(
            f"{name} has signed values of 8 bits, which Pillow reads as 0 to 255; convert it to unsigned ones"
        )


def _pictures(stored: Image.Image) -> int:
    """How many pictures a file holds; copies of one in other sizes do not count."""
    frames: int = getattr(stored, "n_frames", 1)
    if stored.format in FORMATS_OF_ONE_PICTURE:
        return 1
    if frames == 1 or not isinstance(stored, TiffImageFile):
        return frames
    pictures = 1
    for page in range(1, frames):
        stored.seek(page)
        pictures += not stored.tag_v2.get(SUBFILE_TYPE, 0) & PART_OF_ANOTHER_PAGE
    stored.seek(0)
    return pictures
