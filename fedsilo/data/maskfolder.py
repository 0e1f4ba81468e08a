"""Mask folders hold an image in `images`, and in `masks`, under the same name, the class of each of its pixels."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np
from PIL import Image

from fedsilo.api.text import comma_separated
from fedsilo.data.arrays import LoadedData
from fedsilo.data.image_configuration import MaskFolderConfig
from fedsilo.data.image_files import open_image, quoted_file_name, turn_upright, upright_size
from fedsilo.data.imagefolder import entries, image_features, require_images, require_size
from fedsilo.data.persons import persons_in_paths
from fedsilo.errors import DataInvalid, quoted_value
from fedsilo.tasks.interface import LearningTask, first_place
from fedsilo.tasks.segmentation import SegmentationTask

IMAGES: Final = "images"
MASKS: Final = "masks"

MASK_MODES: Final = ("P", "L", "1")
"""Pillow's modes of one number of at most 8 bits for each pixel: an index into a palette, a shade of grey, a bit."""

_VALUES: Final = 256
"""Values that a pixel of a mask can have."""

_NO_CLASS: Final = -1


def read_maskfolder(
    path: Path, config: MaskFolderConfig, task: LearningTask, labels: np.ndarray | None
) -> LoadedData:
    """All images, as `read_imagefolder` gives them, and their masks (N, H, W) with the job's labels, in memory.

    An image and its mask have the same path below `images` and `masks` but for the ending. Sizes of all images and
    masks are compared before any image is decoded.

    :param labels: label in the job of each class of `config.classes`; None where the values are the labels
    :raises DataInvalid: naming the file, what is wrong with it and the remedy
    :raises OSError: a folder or a file may not be read
    """
    if not isinstance(task, SegmentationTask):
        raise DataInvalid(
            f"loader: maskfolder gives a class for each pixel, and task {task.name} learns {task.summary}; "
            "set spec.task.name to segmentation, or use another loader"
        )
    shape = tuple(task.data.input_shape)
    require_images(config, shape)
    pairs = _pairs(path)
    table = _table(config, task, labels)
    masks = np.empty((len(pairs), *shape[1:]), np.min_scalar_type(int(table.max())))
    for position, (image, mask) in enumerate(pairs):
        masks[position] = _labels(mask, image, path, config, task, table)
    images, persons = [image for image, _ in pairs], None
    if config.person is not None:
        paths = [str(image.relative_to(path / IMAGES)) for image in images]
        persons = persons_in_paths(paths, config.person)
    return LoadedData(image_features(path, images, config, shape), masks, persons=persons)


def _pairs(path: Path) -> list[tuple[Path, Path]]:
    """Each image with its mask, sorted by name."""
    images, masks = _by_name(path, IMAGES), _by_name(path, MASKS)
    for name, file in images.items():
        if name not in masks:
            raise DataInvalid(
                f"{quoted_file_name(file.relative_to(path))} has no mask; add "
                f"{quoted_file_name(f'{MASKS}/{name}.png')}, or remove the image"
            )
    for name, file in masks.items():
        if name not in images:
            raise DataInvalid(
                f"{quoted_file_name(file.relative_to(path))} is the mask of no image; name it like its image in "
                f"'{IMAGES}', or remove it"
            )
    return [(images[name], masks[name]) for name in sorted(images)]


def _by_name(path: Path, folder: str) -> dict[str, Path]:
    """The files of a folder by their path in it without the ending."""
    if not (path / folder).is_dir():
        raise DataInvalid(
            f"config.path: {str(path)!r} holds no folder {folder!r}; mount the data there, or correct the path"
        )
    found: dict[str, Path] = {}
    for file in sorted(entries(path / folder)):
        name = str(file.relative_to(path / folder).with_suffix(""))
        if name in found:
            raise DataInvalid(
                f"{quoted_file_name(f'{folder}/{name}')} is there as {quoted_file_name(found[name].name)} and as "
                f"{quoted_file_name(file.name)}; remove one of them"
            )
        found[name] = file
    if not found:
        raise DataInvalid(f"folder {folder!r} is empty; add {folder}, or correct config.path")
    return found


def _table(config: MaskFolderConfig, task: SegmentationTask, labels: np.ndarray | None) -> np.ndarray:
    """Label in the job of every value that a pixel may have, `_NO_CLASS` where it has none, (256,)."""
    table = np.full(_VALUES, _NO_CLASS, np.int64)
    ignore = task.config.ignore
    if ignore is not None and ignore < _VALUES:
        table[ignore] = ignore
    if config.classes is None or labels is None:
        named = min(task.outputs, _VALUES)
        table[:named] = np.arange(named)
    else:
        table[list(config.classes.values())] = labels
    return table


def _labels(
    mask: Path, image: Path, path: Path, config: MaskFolderConfig, task: SegmentationTask, table: np.ndarray
) -> np.ndarray:
    """The job's labels of one mask, (H, W)."""
    name, shape = str(mask.relative_to(path)), tuple(task.data.input_shape)
    size = _size(image, path)
    if config.size is None:
        require_size(str(image.relative_to(path)), size, shape)
    if (own := _size(mask, path)) != size:
        raise DataInvalid(
            f"{quoted_file_name(name)} is {own[0]} pixels wide and {own[1]} high, and its image"
            f" {quoted_file_name(image.relative_to(path))}"
            f" {size[0]} and {size[1]}; give the mask the size of its image, each as "
            "its EXIF orientation turns it"
        )
    values = _values(mask, path)
    labels: np.ndarray = table[values]
    if (wrong := labels == _NO_CLASS).any():
        row, column = first_place(wrong)
        raise DataInvalid(
            f"{quoted_file_name(name)} has value {quoted_value(values[row, column])} at row {row}, column {column}, "
            f"which is no class; {_remedy(config, task)}"
        )
    if config.size is not None:
        # Classes have no mean: each pixel gets that of the nearest one.
        resized = Image.fromarray(values).resize(config.size[::-1], Image.Resampling.NEAREST)
        labels = table[np.asarray(resized)]
    return labels


def _remedy(config: MaskFolderConfig, task: SegmentationTask) -> str:
    silent = (
        "" if task.config.ignore is not None else ", or set spec.task.config.ignore where it says nothing"
    )
    if config.classes is None:
        return f"number classes from 0 to {task.outputs - 1}, or give the value of each in config.classes{silent}"
    given = comma_separated([f"{name} {value}" for name, value in config.classes.items()], 3)
    return f"correct the mask, or config.classes ({given}){silent}"


def _size(file: Path, path: Path) -> tuple[int, int]:
    """Width and height of a picture that is upright, as the file's header says."""
    with open_image(file, path) as stored:
        return upright_size(stored)


def _values(mask: Path, path: Path) -> np.ndarray:
    """Pixels as stored, upright, (height, width), uint8."""
    with open_image(mask, path) as stored:
        if stored.mode not in MASK_MODES:
            raise DataInvalid(
                f"{quoted_file_name(mask.relative_to(path))} is no mask of one class for each pixel (mode "
                f"{stored.mode}); write it as a PNG with a palette, or in grey of 8 bits, whose values stand for "
                "classes"
            )
        turn_upright(stored)
        return np.asarray(stored).astype(np.uint8)
