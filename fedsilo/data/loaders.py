"""From a silo's `DatasetSpec` to checked arrays: the loaders, and `load`, which also applies the partition.

Image folders have a module of their own. Loaders return raw features and labels; `fedsilo.data.arrays` checks
them. Nothing is ever unpickled.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, assert_never

import numpy as np

from fedsilo.api.text import first_line
from fedsilo.data.arrays import Arrays, checked
from fedsilo.data.catalogue import (
    DigitsConfig,
    ImageFolderConfig,
    NpzConfig,
    PythonConfig,
    TorchvisionLoaderConfig,
    loader_config,
)
from fedsilo.data.imagefolder import read_imagefolder
from fedsilo.data.partitions import partition
from fedsilo.errors import DataInvalid

if TYPE_CHECKING:
    from fedsilo.api.datasets import DatasetSpec
    from fedsilo.api.job import DataSpec

__all__ = ["Arrays", "all_parts", "load", "load_whole", "own_part"]

Raw = tuple[object, object]
"""Features and labels as a loader found them."""


def load(dataset: DatasetSpec, data: DataSpec, *, root: Path) -> Arrays:
    """A silo's samples: the whole dataset, or the part that its partition assigns.

    :param dataset: what the silo offers
    :param data: what the job expects: number of classes and shape of an item
    :param root: folder against which relative paths in `dataset.config` are resolved
    :raises ManifestInvalid: the loader, the scheme or a configuration is unknown
    :raises DataInvalid: the data are not there or not what the job says; names dataset, item and remedy
    """
    whole = load_whole(dataset, data, root=root)
    if dataset.partition is None:
        return whole
    return whole.take(own_part(dataset, all_parts(dataset, whole.labels)))


def load_whole(dataset: DatasetSpec, data: DataSpec, *, root: Path) -> Arrays:
    """All samples that the loader finds, whatever the partition; errors as `load`."""
    config = loader_config(dataset)
    with _naming(dataset):
        match config:
            case DigitsConfig():
                raw = read_digits(config)
            case NpzConfig():
                raw = read_npz(root / config.path, config)
            case ImageFolderConfig():
                raw = read_imagefolder(root / config.path, config, data.class_count, data.input_shape)
            case TorchvisionLoaderConfig():
                raw = read_torchvision(
                    dataset.loader.removeprefix("torchvision:"), root / config.path, config
                )
            case PythonConfig():
                raw = call_function(dataset.loader.removeprefix("python:"), dataset.config)
            case _:
                assert_never(config)
        return checked(*raw, classes=data.class_count, input_shape=tuple(data.input_shape))


def all_parts(dataset: DatasetSpec, labels: np.ndarray) -> list[np.ndarray]:
    """The indices of every silo's samples, as the dataset's partition divides them; errors as `load`."""
    assert dataset.partition is not None
    with _naming(dataset):
        return partition(labels, dataset.partition)


def own_part(dataset: DatasetSpec, parts: list[np.ndarray]) -> np.ndarray:
    """The indices of this silo's samples; errors as `load`."""
    spec = dataset.partition
    assert spec is not None
    with _naming(dataset):
        if not len(parts[spec.index]):
            raise DataInvalid(
                f"partition.index: part {spec.index} of {spec.silos} (scheme {spec.scheme!r}) is empty;"
                " use fewer silos or change the seed"
            )
    return parts[spec.index]


@contextmanager
def _naming(dataset: DatasetSpec) -> Iterator[None]:
    try:
        yield
    except DataInvalid as error:
        raise DataInvalid(f"dataset {dataset.name!r}: {error}") from error
    except OSError as error:
        raise DataInvalid(
            f"dataset {dataset.name!r}: {str(error.filename or 'a file')!r} cannot be read"
            f" ({error.strerror or first_line(error)}); give this process the right to read it"
        ) from error
    except MemoryError as error:
        raise DataInvalid(
            f"dataset {dataset.name!r}: does not fit into memory ({first_line(error)});"
            " give the trainer more, or use a smaller dataset"
        ) from error


def read_digits(config: DigitsConfig) -> Raw:
    """scikit-learn's digits as float32 in [0, 1], shape (N, 8, 8).

    Train and test are not stratified: one seeded permutation, of which the first `testFraction` is test.
    """
    images, labels = _shipped_digits()
    images = (images / 16).astype(np.float32).reshape(-1, 8, 8)
    order = np.random.RandomState(config.seed).permutation(len(labels))
    test = int(config.test_fraction * len(labels))
    chosen = {"test": order[:test], "train": order[test:], "all": np.arange(len(labels))}[config.split]
    return images[chosen], labels[chosen]


def _shipped_digits() -> tuple[np.ndarray, np.ndarray]:
    """What `sklearn.datasets.load_digits` returns, from its file: importing scikit-learn takes over a second."""
    package = importlib.util.find_spec("sklearn")
    if package is None or not package.submodule_search_locations:
        raise ModuleNotFoundError("No module named 'sklearn'", name="sklearn")
    table = np.loadtxt(
        Path(package.submodule_search_locations[0], "datasets", "data", "digits.csv.gz"), delimiter=","
    )
    return table[:, :-1], table[:, -1].astype(int)


def read_npz(path: Path, config: NpzConfig) -> Raw:
    """Two arrays of an `.npz` file."""
    if not path.is_file():
        raise DataInvalid(
            f"config.path: {str(path)!r} is not a file; mount the data there or correct the path"
        )
    try:
        # The file is opened here, because NumPy leaves a damaged archive open; NpzFile and not np.load, which
        # takes what is no archive for a pickle.
        with path.open("rb") as file:
            archive = np.lib.npyio.NpzFile(file, allow_pickle=False)
            for field, key in (("features", config.features), ("labels", config.labels)):
                if key not in archive.files:
                    raise DataInvalid(
                        f"config.{field}: {key!r} is not an array of {str(path)!r};"
                        f" use one of {', '.join(archive.files)}"
                    )
            return archive[config.features], archive[config.labels]
    except (DataInvalid, PermissionError):
        raise
    except Exception as error:  # what archives and decompressors raise on a broken file is not specified
        raise DataInvalid(
            f"config.path: {str(path)!r} cannot be read ({first_line(error)});"
            " write numeric arrays with numpy.savez"
        ) from error


def read_torchvision(name: str, root: Path, config: TorchvisionLoaderConfig) -> Raw:
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
            f"config.path: torchvision cannot open {name!r} in {str(root)!r} ({first_line(error)});"
            " place the files there or set config.download to true"
        ) from error
    labels = getattr(items, "targets", getattr(items, "labels", None))
    if labels is not None and isinstance(getattr(items, "data", None), np.ndarray | torch.Tensor):
        return items.data, labels
    try:
        pairs = [items[index] for index in range(len(items))]
    except Exception as error:
        raise DataInvalid(
            f"config.path: torchvision cannot read the items of {name!r} in {str(root)!r} ({first_line(error)});"
            " place the files there again"
        ) from error
    return [np.asarray(image) for image, _ in pairs], [label for _, label in pairs]


def call_function(reference: str, arguments: dict[str, Any]) -> Raw:
    """What `module:function` returns for the configuration as keyword arguments: (features, labels).

    The function is the institution's own code and may raise anything; one that ends the process would otherwise be a
    trainer that has nothing more to do.
    """
    module, _, name = reference.partition(":")
    try:
        function = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise DataInvalid(
            f"loader: python:{reference} cannot be imported ({first_line(error)});"
            " install it in the trainer's image"
        ) from error
    except (Exception, SystemExit) as error:
        raise DataInvalid(
            f"loader: python:{reference} cannot be imported ({_described(error)}); correct the module"
        ) from error
    try:
        result = function(**arguments)
    except (Exception, SystemExit) as error:
        raise DataInvalid(
            f"loader: python:{reference} raised {_described(error)}; correct the function or its config"
        ) from error
    if not isinstance(result, tuple) or len(result) != 2:
        raise DataInvalid(
            f"loader: python:{reference} returned {type(result).__name__}; return a tuple (features, labels)"
        )
    return result


def _described(error: BaseException) -> str:
    """An error of foreign code: its type, and what it says."""
    kind, text = type(error).__name__, first_line(error)
    return f"{kind}: {text}" if text != kind else f"{kind} without a message"
