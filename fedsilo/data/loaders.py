"""From a silo's `DatasetSpec` to checked arrays: the loaders, and `load`, which also applies the partition.

Image folders have a module of their own. Loaders return raw features and labels; `fedsilo.data.arrays` checks
them. Nothing is ever unpickled.
"""

from __future__ import annotations

import importlib.util
import inspect
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, assert_never

import numpy as np

from fedsilo.api.text import first_line
from fedsilo.data.array_files import read_npy, read_npz
from fedsilo.data.arrays import Arrays, LoadedData, checked_arrays, image_schema
from fedsilo.data.catalogue import (
    DigitsConfig,
    NpyConfig,
    NpzConfig,
    PythonConfig,
    TorchvisionLoaderConfig,
    loader_config,
)
from fedsilo.data.features import FeatureRules, numeric_array
from fedsilo.data.image_configuration import ImageFolderConfig, MaskFolderConfig
from fedsilo.data.imagefolder import class_folders, read_imagefolder
from fedsilo.data.maskfolder import read_maskfolder
from fedsilo.data.numbering import Numbering, number_classes, refuse_without_names
from fedsilo.data.partitions import partition
from fedsilo.data.persons import checked_persons
from fedsilo.data.python_loader import call_function
from fedsilo.data.sources import FeatureSource, naming
from fedsilo.data.table_configuration import CsvConfig, ParquetConfig
from fedsilo.data.tables import read_labelled_table
from fedsilo.errors import DataInvalid, quoted_value
from fedsilo.tasks.interface import LearningTask
from fedsilo.tasks.registry import bind

if TYPE_CHECKING:
    from fedsilo.api.data import DataSpec
    from fedsilo.api.datasets import DatasetSpec
    from fedsilo.api.job import LearningTaskSpec

__all__ = ["Arrays", "all_parts", "load", "load_whole", "own_part"]


def load(
    dataset: DatasetSpec,
    data: DataSpec,
    *,
    root: Path,
    task: LearningTaskSpec | None = None,
    labelled: bool = True,
    exact: bool = False,
) -> Arrays:
    """Load a silo's samples: the whole dataset, or the part that its partition assigns.

    :param dataset: what the silo offers
    :param data: what the job expects: number of classes and shape of an item
    :param root: folder against which relative paths in `dataset.config` are resolved
    :param task: what the job learns; classes by default
    :param labelled: whether the labels are of the job; otherwise they are not looked at, and zeros take their place
    :param exact: whether every number of the features counts as it is written
    :raises ManifestInvalid: the loader, the scheme or a configuration is unknown
    :raises DataInvalid: the data are not there or not what the job says; names dataset, item and remedy
    """
    whole = load_whole(dataset, data, root=root, task=task, labelled=labelled, exact=exact)
    if dataset.partition is None:
        return whole
    parts = all_parts(dataset, bind(task, data).strata(whole.labels))
    return whole.take(own_part(dataset, parts))


def load_whole(
    dataset: DatasetSpec,
    data: DataSpec,
    *,
    root: Path,
    task: LearningTaskSpec | None = None,
    labelled: bool = True,
    exact: bool = False,
) -> Arrays:
    """All samples that the loader finds, whatever the partition; errors as `load`."""
    config, learning_task = loader_config(dataset), bind(task, data)
    rules = FeatureRules.of(data, exact=exact)
    with naming(dataset.name):
        match config:
            case DigitsConfig():
                raw = read_digits(config)
            case NpzConfig():
                raw = read_npz(root / config.path, config)
            case NpyConfig():
                raw = read_npy(root, config)
            case CsvConfig() | ParquetConfig():
                raw = read_labelled_table(root, config, data, rules, dataset.class_aliases or ())
            case ImageFolderConfig():
                _require_single_label(learning_task)
                folders = class_folders(root / config.path, data if labelled else None)
                # Names that are not the job's are found before any image is decoded.
                if labelled:
                    _numbering([folder.name for folder in folders], dataset, data, ordered=False)
                raw = read_imagefolder(root / config.path, config, folders, data.input_shape)
            case MaskFolderConfig():
                return _masks(root / config.path, config, dataset, learning_task, rules)
            case TorchvisionLoaderConfig():
                raw = read_torchvision(
                    dataset.loader.removeprefix("torchvision:"), root / config.path, config
                )
            case PythonConfig():
                raw = call_function(dataset.loader, dataset.config)
            case _:
                assert_never(config)
        if not labelled:
            return _unlabelled_arrays(raw.features, dataset, learning_task, rules)
        return _with_persons(_in_the_jobs_labels(raw, dataset, learning_task, rules), raw)


def _with_persons(found: Arrays, raw: LoadedData) -> Arrays:
    return found if raw.persons is None else replace(found, persons=checked_persons(raw.persons, len(found)))


def _unlabelled_arrays(
    features: object, dataset: DatasetSpec, task: LearningTask, rules: FeatureRules
) -> Arrays:
    """Examples whose labels nobody reads, so that they need not be of the job's classes."""
    count = (
        features.shape[0] if isinstance(features, FeatureSource) else len(numeric_array("features", features))
    )
    return checked_arrays(features, np.zeros(count, np.int64), task, dataset=dataset.name, rules=rules)


def _in_the_jobs_labels(
    raw: LoadedData, dataset: DatasetSpec, task: LearningTask, rules: FeatureRules
) -> Arrays:
    data = task.data
    if data.classes is None:
        found = checked_arrays(raw.features, raw.labels, task, dataset=dataset.name, rules=rules)
        return replace(found, schema=image_schema(found.features) if raw.schema is None else raw.schema)
    numbering = _numbering(raw.classes, dataset, data, raw.ordered)
    by_name = numbering is not None and not (data.class_names is None and raw.ordered)
    if numbering is not None and by_name and not task.single_label:
        _require_the_jobs_order(numbering, data)
        by_name = False
    count = len(numbering.labels) if numbering is not None and by_name else None
    found = checked_arrays(raw.features, raw.labels, task, count, dataset.name, rules=rules)
    schema = image_schema(found.features) if raw.schema is None else raw.schema
    if numbering is None:
        return replace(found, schema=schema)
    labels = numbering.labels[found.labels] if by_name else found.labels
    return replace(found, labels=labels, schema=replace(schema, classes=numbering.classes))


def _masks(
    path: Path, config: MaskFolderConfig, dataset: DatasetSpec, task: LearningTask, rules: FeatureRules
) -> Arrays:
    """Images and masks, whose values are classes by name where the configuration names them."""
    names = None if config.classes is None else list(config.classes)
    # As in a folder of images, names that are not the job's are found before any file is read.
    numbering = (
        _numbering(names, dataset, task.data, ordered=False) if task.data.classes is not None else None
    )
    raw = read_maskfolder(path, config, task, None if numbering is None else numbering.labels)
    found = checked_arrays(raw.features, raw.labels, task, dataset=dataset.name, rules=rules)
    schema = image_schema(found.features)
    named = schema if numbering is None else replace(schema, classes=numbering.classes)
    return _with_persons(replace(found, schema=named), raw)


def _require_the_jobs_order(numbering: Numbering, data: DataSpec) -> None:
    """Masks and lists of labels hold classes by number, which are not renumbered here."""
    if list(numbering.labels) != list(range(data.class_count)):
        raise DataInvalid(
            f"classes: these data number the classes otherwise than the job; number them as spec.data.classes lists "
            f"them: {', '.join(data.class_names or ())}"
        )


def _numbering(
    names: Sequence[str] | None, dataset: DatasetSpec, data: DataSpec, ordered: bool
) -> Numbering | None:
    """The labels of named classes; None for data without names."""
    if names is not None:
        return number_classes(names, data, dataset.class_aliases, ordered=ordered)
    if dataset.class_aliases:
        raise DataInvalid("classAliases: these data have no names of classes; remove it")
    refuse_without_names(data)
    return None


def _require_single_label(task: LearningTask) -> None:
    if not task.single_label:
        raise DataInvalid(
            f"loader: imagefolder gives one class for each image, and task {task.name} learns "
            f"{task.summary}; use maskfolder, npz or a python: loader"
        )


def all_parts(dataset: DatasetSpec, labels: np.ndarray) -> list[np.ndarray]:
    """The indices of every silo's samples, as the dataset's partition divides them; errors as `load`.

    :param labels: class of each example, `LearningTask.strata` of the targets
    """
    assert dataset.partition is not None
    with naming(dataset.name):
        return partition(labels, dataset.partition)


def own_part(dataset: DatasetSpec, parts: list[np.ndarray]) -> np.ndarray:
    """The indices of this silo's samples; errors as `load`."""
    spec = dataset.partition
    assert spec is not None
    with naming(dataset.name):
        if not len(parts[spec.index]):
            raise DataInvalid(
                f"partition.index: part {spec.index} of {spec.silos} (scheme {spec.scheme!r}) is empty;"
                " use fewer silos or change the seed"
            )
    return parts[spec.index]


def read_digits(config: DigitsConfig) -> LoadedData:
    """scikit-learn's digits as float32 in [0, 1], shape (N, 8, 8).

    Train and test are not stratified: one seeded permutation, of which the first `testFraction` is test.
    """
    images, labels = shipped_digits()
    images = (images / 16).astype(np.float32).reshape(-1, 8, 8)
    order = np.random.RandomState(config.seed).permutation(len(labels))
    test = int(config.test_fraction * len(labels))
    chosen = {"test": order[:test], "train": order[test:], "all": np.arange(len(labels))}[config.split]
    return LoadedData(images[chosen], labels[chosen], [str(digit) for digit in range(10)])


def shipped_digits() -> tuple[np.ndarray, np.ndarray]:
    """What `sklearn.datasets.load_digits` returns, (1797, 64) and (1797,)."""
    table = np.loadtxt(shipped_file("datasets", "data", "digits.csv.gz"), delimiter=",")
    return table[:, :-1], table[:, -1].astype(int)


def shipped_file(*parts: str) -> Path:
    """A file of scikit-learn's package, without importing it, which takes over a second."""
    package = importlib.util.find_spec("sklearn")
    if package is None or not package.submodule_search_locations:
        raise ModuleNotFoundError("No module named 'sklearn'", name="sklearn")
    return Path(package.submodule_search_locations[0], *parts)


def read_torchvision(name: str, root: Path, config: TorchvisionLoaderConfig) -> LoadedData:
    """A torchvision dataset's train or test split, from its arrays where it has them, else item by item."""
    import torch
    import torchvision.datasets

    if name not in torchvision.datasets.__all__:
        raise DataInvalid(
            f"loader: torchvision has no dataset {name!r}; see torchvision.datasets for its names"
        )
    constructor: Any = getattr(torchvision.datasets, name)
    parameters = inspect.signature(constructor).parameters
    chosen: dict[str, Any] = {"train": config.split == "train"} if "train" in parameters else {}
    if "split" in parameters:
        chosen = {"split": config.split}
    if not chosen:
        raise DataInvalid(f"loader: torchvision's {name!r} has no train and test split; use a python: loader")
    try:
        items: Any = constructor(root=str(root), download=config.download, **chosen)
    except Exception as error:  # each dataset has its own way to fail
        raise DataInvalid(
            f"config.path: torchvision cannot open {name!r} in {str(root)!r} ({quoted_value(first_line(error))});"
            " place the files there or set config.download to true"
        ) from error
    labels = getattr(items, "targets", getattr(items, "labels", None))
    if labels is not None and isinstance(getattr(items, "data", None), np.ndarray | torch.Tensor):
        return LoadedData(items.data, labels, _torchvision_classes(items))
    try:
        pairs = [items[index] for index in range(len(items))]
    except Exception as error:
        raise DataInvalid(
            f"config.path: torchvision cannot read the items of {name!r} in {str(root)!r}"
            f" ({quoted_value(first_line(error))}); place the files there again"
        ) from error
    images, labels = [np.asarray(image) for image, _ in pairs], [label for _, label in pairs]
    return LoadedData(images, labels, _torchvision_classes(items))


def _torchvision_classes(items: object) -> list[str] | None:
    """The names that most of torchvision's datasets have; synonyms, which some have, are compared with nothing."""
    names = getattr(items, "classes", None)
    if not isinstance(names, list | tuple) or not names or not all(isinstance(name, str) for name in names):
        return None
    return list(names) if len(set(names)) == len(names) else None
