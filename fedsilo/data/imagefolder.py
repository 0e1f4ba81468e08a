"""Image folders: one folder per class, one file per image."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from fedsilo.data.catalogue import ImageFolderConfig
from fedsilo.errors import DataInvalid

PILLOW_MODES = {1: "L", 3: "RGB"}
"""Grey and colour images of 8 bits, by number of channels."""


def read_imagefolder(
    path: Path, config: ImageFolderConfig, classes: int, input_shape: tuple[int, ...]
) -> tuple[np.ndarray, np.ndarray]:
    """All images as uint8 (N, C, H, W), and the position of each one's folder in sorted order as its class.

    Images become grey or colour as `input_shape` has one or three channels. Hidden files are passed over.

    :raises DataInvalid: a folder is missing, empty or one too many, or a file is no image of that shape
    """
    if len(input_shape) != 3 or input_shape[0] not in PILLOW_MODES:
        raise DataInvalid(
            f"an image folder gives 1 or 3 channels, but data.inputShape of the job is {list(input_shape)};"
            " use [1, height, width] or [3, height, width]"
        )
    files = _list_files(path, classes)
    features = np.empty((len(files), *input_shape), dtype=np.uint8)
    for position, (file, _) in enumerate(files):
        features[position] = _decode(file, path, config, input_shape)
    return features, np.array([label for _, label in files], dtype=np.int64)


def _list_files(path: Path, classes: int) -> list[tuple[Path, int]]:
    if not path.is_dir():
        raise DataInvalid(
            f"config.path: {str(path)!r} is not a folder; mount the data there or correct the path"
        )
    folders = sorted(entry for entry in path.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    if len(folders) != classes:
        raise DataInvalid(
            f"config.path: {str(path)!r} holds {len(folders)} class folders, but data.classes of the job is"
            f" {classes}; give one folder per class"
        )
    files = []
    for label, folder in enumerate(folders):
        images = sorted(f for f in folder.rglob("*") if f.is_file() and not f.name.startswith("."))
        if not images:
            raise DataInvalid(f"class folder {folder.name!r} is empty; add images or correct config.path")
        files += [(image, label) for image in images]
    return files


def _decode(file: Path, path: Path, config: ImageFolderConfig, input_shape: tuple[int, ...]) -> np.ndarray:
    name = str(file.relative_to(path))
    try:
        with Image.open(file) as stored:
            if stored.mode.startswith(("I", "F")):
                raise DataInvalid(
                    f"{name!r} has more than 8 bits per pixel (mode {stored.mode}), which would be clipped;"
                    " convert it, or give float32 through an npz loader"
                )
            image = stored.convert(PILLOW_MODES[input_shape[0]])
    except DataInvalid:
        raise
    except Exception as error:  # what Pillow's decoders raise on a broken file is not specified
        raise DataInvalid(f"{name!r} cannot be decoded as an image ({error}); repair or remove it") from error
    if config.size is not None:
        height, width = config.size
        image = image.resize((width, height), Image.Resampling.BILINEAR)
    pixels = np.asarray(image)
    pixels = pixels[np.newaxis] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)
    if pixels.shape != tuple(input_shape):
        raise DataInvalid(
            f"{name!r} has shape {list(pixels.shape)}, but data.inputShape of the job is {list(input_shape)};"
            f" set config.size to {list(input_shape[1:])} to resize, or correct the job"
        )
    return pixels
