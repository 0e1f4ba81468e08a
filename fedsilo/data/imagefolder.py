"""Image folders have one folder per class and one file per image."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from fedsilo.api.data import DataSpec
from fedsilo.data.arrays import LoadedData
from fedsilo.data.features import scaled_16_bits
from fedsilo.data.image_configuration import ImageFilesConfig, ImageFolderConfig
from fedsilo.data.image_files import (
    is_white_at_zero,
    open_image,
    quoted_file_name,
    turn_upright,
    upright_size,
)
from fedsilo.data.persons import persons_in_paths
from fedsilo.data.sources import stays_in_files
from fedsilo.errors import DataInvalid

PILLOW_MODES = {1: "L", 3: "RGB"}
"""Grey and colour images of 8 bits, by number of channels."""

DEEP_RAW_MODES = (";16B", ";16L", ";16N")
"""Ends of Pillow's names for the pixels of files with 16 bits per channel, of which it keeps 8 in colour."""

LARGE_PIXELS = 1 << 24
"""From so many pixels on, an image has the right shape before any is unpacked."""


def class_folders(path: Path, data: DataSpec | None) -> list[Path]:
    """The folders of the classes, by name.

    :param data: what the job expects of them; None where it reads no labels.

    :raises DataInvalid: when there is no such path, or another number of folders than a job says that has no names.
    """
    if not path.is_dir():
        raise DataInvalid(
            f"config.path: {str(path)!r} is not a folder; mount the data there or correct the path"
        )
    shown = sorted(entry for entry in path.iterdir() if not entry.name.startswith("."))
    for entry in shown:
        if not entry.exists():
            raise DataInvalid(
                f"class folder {quoted_file_name(entry.name)} is a link to nothing; mend or remove it"
            )
    folders = [entry for entry in shown if entry.is_dir()]
    if data is None and folders:
        return folders
    if data is None:
        raise DataInvalid(
            f"config.path: {str(path)!r} holds no folder; put the images into one or more folders there"
        )
    if not folders or (data.class_names is None and len(folders) != data.class_count):
        raise DataInvalid(
            f"config.path: {str(path)!r} holds {len(folders)} class folders, but data.classes of the job is"
            f" {data.class_count}; give one folder per class, or list the names of the classes in spec.data.classes,"
            " where a silo may lack some"
        )
    return folders


def read_imagefolder(
    path: Path, config: ImageFolderConfig, folders: Sequence[Path], input_shape: tuple[int, ...]
) -> LoadedData:
    """All images (N, C, H, W), uint8 or, of 16 bits, float32, and the position of each one's folder as its class.

    Images that stay in their files are decoded when they are needed, and found damaged then.

    Images become grey or colour as `input_shape` has one or three channels. Hidden files are passed over.

    :param folders: of the classes.
    :raises DataInvalid: a folder is empty, or a file is no image of that shape
    :raises OSError: a folder or a file may not be read
    """
    require_images(config, input_shape)
    files = _list_files(folders)
    features = image_features(path, [file for file, _ in files], config, input_shape)
    labels = np.array([label for _, label in files], dtype=np.int64)
    persons = None
    if config.person is not None:
        paths = [str(file.relative_to(folders[label])) for file, label in files]
        persons = persons_in_paths(paths, config.person)
    return LoadedData(features, labels, [folder.name for folder in folders], ordered=False, persons=persons)


def require_images(config: ImageFilesConfig, input_shape: tuple[int, ...]) -> None:
    """Refuse a job whose examples are not what image files give.

    :raises DataInvalid: naming the field
    """
    if len(input_shape) != 3 or input_shape[0] not in PILLOW_MODES:
        raise DataInvalid(
            f"an image folder gives 1 or 3 channels, but data.inputShape of the job is {list(input_shape)};"
            " use [1, height, width] or [3, height, width]"
        )
    if config.size is not None and config.size != tuple(input_shape[1:]):
        raise DataInvalid(
            f"config.size: {list(config.size)} is not the height and width of data.inputShape of the job, which is"
            f" {list(input_shape)}; set it to {list(input_shape[1:])}, or correct the job"
        )
    if config.bits == 16 and input_shape[0] != 1:
        raise DataInvalid(
            f"config.bits: 16 is for grey images, but data.inputShape of the job is {list(input_shape)}; Pillow reads"
            " colours with 8 bits, so use a python: loader for more"
        )


def image_features(
    root: Path, files: Sequence[Path], config: ImageFilesConfig, input_shape: tuple[int, ...]
) -> ImageFiles | np.ndarray:
    """The images of these files, held in memory or as a source, as their size and the configuration say."""
    images = ImageFiles(root, tuple(files), config, tuple(input_shape))
    stored = stays_in_files(config.in_memory, math.prod(images.shape) * images.dtype.itemsize)
    return images if stored else images.read(np.arange(len(files)))


@dataclass(frozen=True)
class ImageFiles:
    """Images as a source, decoded when they are read.

    :param root: folder that errors name the files from
    """

    root: Path
    files: tuple[Path, ...]
    config: ImageFilesConfig
    input_shape: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """(N, C, H, W)."""
        return (len(self.files), *self.input_shape)

    @property
    def dtype(self) -> np.dtype:
        """Element type of the pixels: uint8 for 8 bits, float32 for more."""
        return np.dtype(np.uint8 if self.config.bits == 8 else np.float32)

    def read(self, items: np.ndarray) -> np.ndarray:
        """Pixels of these image files, decoded in this order, shape (len(items), C, H, W)."""
        pixels = np.empty((len(items), *self.input_shape), self.dtype)
        for position, item in enumerate(items.tolist()):
            pixels[position] = _decode(self.files[item], self.root, self.config, self.input_shape)
        return pixels


def _list_files(folders: Sequence[Path]) -> list[tuple[Path, int]]:
    files = []
    for label, folder in enumerate(folders):
        images = sorted(entries(folder))
        if not images:
            raise DataInvalid(
                f"class folder {quoted_file_name(folder.name)} is empty; add images or correct config.path"
            )
        files += [(image, label) for image in images]
    return files


def entries(folder: Path) -> Iterator[Path]:
    """The files of a folder and of those in it that are not hidden.

    Unlike `Path.rglob`, it does not pass over what may not be read, or is not followed.

    :raises DataInvalid: what is neither a file nor a folder.
    """

    def refuse(error: OSError) -> None:
        raise error

    for directory, folders, names in os.walk(folder, onerror=refuse):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for path in (Path(directory, name) for name in folders + names if not name.startswith(".")):
            place = str(path.relative_to(folder.parent))
            if path.is_symlink() and path.is_dir():
                remedy = "put the images in its place"
                raise DataInvalid(
                    f"{quoted_file_name(place)} is a link to a folder, which is not followed; {remedy}"
                )
            if path.is_file():
                yield path
            elif path.name in names:
                kind = "a link to nothing" if path.is_symlink() else "no file that holds an image"
                raise DataInvalid(f"{quoted_file_name(place)} is {kind}; mend or remove it")


def _decode(file: Path, path: Path, config: ImageFilesConfig, input_shape: tuple[int, ...]) -> np.ndarray:
    name = str(file.relative_to(path))
    channels, height, width = input_shape
    with open_image(file, path) as stored:
        deep = _deep_mode(stored)
        if config.bits == 8 and deep is not None:
            grey = channels == 1 and stored.mode.startswith("I")
            remedy = "set config.bits to 16" if grey else "give float32 through an npz loader"
            raise DataInvalid(
                f"{quoted_file_name(name)} has more than 8 bits per pixel (mode {deep}), which would be clipped; "
                f"convert it, or {remedy}"
            )
        if (
            config.size is None
            and stored.width * stored.height > LARGE_PIXELS
            and {*stored.size} != {width, height}
        ):
            require_size(name, upright_size(stored), input_shape)
        turn_upright(stored)
        deep_grey = config.bits == 16
        image = _grey_of_16_bits(stored, name, deep) if deep_grey else stored.convert(PILLOW_MODES[channels])
        if config.size is not None:
            image = image.resize((width, height), Image.Resampling.BILINEAR)
        require_size(name, image.size, input_shape)
        pixels = np.asarray(image)
    return pixels[np.newaxis] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)


def _grey_of_16_bits(stored: Image.Image, name: str, deep: str | None) -> Image.Image:
    """Pixels from 0 to 1 in Pillow's mode of floating-point numbers, which it can resize."""
    if deep is None or not stored.mode.startswith("I"):
        raise DataInvalid(
            f"{quoted_file_name(name)} is not a grey image of 16 bits (mode {deep or stored.mode}), but config.bits is "
            "16; convert it, or keep images of one kind in a folder"
        )
    pixels = np.asarray(stored)
    if pixels.min() < 0 or pixels.max() > 65535:
        raise DataInvalid(f"{quoted_file_name(name)} has pixels outside of 0 to 65535; convert it to 16 bits")
    return Image.fromarray(scaled_16_bits(65535 - pixels if is_white_at_zero(stored) else pixels))


def require_size(name: str, size: tuple[int, int], input_shape: tuple[int, ...]) -> None:
    """Refuse an image of another shape than the job's.

    :param size: width and height
    :raises DataInvalid: naming the image
    """
    channels, height, width = input_shape
    if size != (width, height):
        raise DataInvalid(
            f"{quoted_file_name(name)} has shape {[channels, size[1], size[0]]}, but data.inputShape of the job is"
            f" {list(input_shape)}; set config.size to {[height, width]} to resize, or correct the job"
        )


def _deep_mode(image: Image.Image) -> str | None:
    """How a file says that it has more than 8 bits per channel, which Pillow would clip or cut; None if it does not."""
    if image.mode.startswith(("I", "F")):
        return image.mode
    for codec, _, _, arguments in getattr(image, "tile", ()):
        values = arguments if isinstance(arguments, tuple) else (arguments,)
        for value in values:
            if isinstance(value, str) and value.endswith(DEEP_RAW_MODES):
                return value
            if codec.startswith("ppm") and isinstance(value, int) and value > 255:
                return f"{image.mode}, values up to {value}"
    return None
