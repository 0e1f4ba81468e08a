"""Whether two datasets of one holder are read from the same examples, or files, as far as their descriptions say.

No file is touched unless it is asked for: a copy is never found, nor a link with another name otherwise. What only
changes how examples are read (sizes, columns, memory) makes no other examples of them.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any, assert_never

from fedsilo.data.catalogue import (
    DigitsConfig,
    LoaderConfig,
    NpyConfig,
    NpzConfig,
    PythonConfig,
    TorchvisionLoaderConfig,
    check_dataset,
    loader_config,
)
from fedsilo.data.image_configuration import ImageFolderConfig, MaskFolderConfig
from fedsilo.data.table_configuration import CsvConfig, ParquetConfig

if TYPE_CHECKING:
    from fedsilo.api.datasets import DatasetSpec

Place = tuple[str, ...]
"""What a file or folder lies on, a volume or the holder's own files, and the names on the way to it."""


def share_examples(one: DatasetSpec, other: DatasetSpec, *, root: Path) -> bool:
    """Whether an example may be in both; not where either has faults of its own.

    Two parts of one iid partition have none in common. Of other partitions that is not certain: they go by the labels,
    which not every reader of a dataset reads.

    :param root: folder that relative paths start from.
    """
    if one.loader != other.loader or check_dataset(one) or check_dataset(other):
        return False
    if _normalised_value(one.config) == _normalised_value(other.config) and _are_different_parts(one, other):
        return False
    configs = loader_config(one), loader_config(other)
    volumes = _volumes((one, other))
    files = [[_place(path, root, volumes) for path in _paths(config)] for config in configs]
    same_files = not any(files) or any(_overlap(a, b) for a in files[0] for b in files[1])
    return same_files and _may_choose_the_same(*configs)


def of_the_same_data(
    datasets: Sequence[DatasetSpec], *, root: Path, here: bool = False
) -> Iterator[tuple[str, str]]:
    """Names of each two datasets that are read from the same files, by whatever loader, and whatever is chosen of them.

    Not where that is certainly nothing in common: two parts of one iid partition, or a train and a test split.

    :param root: folder that relative paths start from.
    :param here: whether the files are on this machine: then links, and other names of a file or folder, are followed.
    """
    sound = [dataset for dataset in datasets if not check_dataset(dataset)]
    volumes = {} if here else _volumes(sound)
    configs = [loader_config(dataset) for dataset in sound]
    places = [[_place(path, root, volumes) for path in _paths(config)] for config in configs]
    overlap = _overlap_here if here else _overlap
    for first, second in combinations(range(len(sound)), 2):
        one, other = sound[first], sound[second]
        if one.loader == other.loader and (
            not _may_be_the_same(configs[first], configs[second]) or _are_different_parts(one, other)
        ):
            continue
        no_files = not places[first] and not places[second] and one.loader == other.loader
        if no_files or any(overlap(a, b) for a in places[first] for b in places[second]):
            yield one.name, other.name


def _volumes(datasets: Sequence[DatasetSpec]) -> dict[str, str]:
    """Name of a dataset -> what it is on."""
    return {dataset.name: repr(dataset.volume) for dataset in datasets if dataset.volume is not None}


def _are_different_parts(one: DatasetSpec, other: DatasetSpec) -> bool:
    first, second = one.partition, other.partition
    if first is None or second is None or first.scheme != "iid" or first.index == second.index:
        return False
    return first == second.model_copy(update={"index": first.index})


def _paths(config: LoaderConfig) -> Sequence[str]:
    """Where the examples' inputs are; nothing of a loader that says it otherwise."""
    match config:
        case NpzConfig() | ImageFolderConfig() | MaskFolderConfig() | TorchvisionLoaderConfig():
            return (config.path,)
        case CsvConfig() | ParquetConfig():
            return (config.path,) if isinstance(config.path, str) else config.path
        case NpyConfig():
            return (config.features,)
        case DigitsConfig() | PythonConfig():
            return ()
        case _:
            assert_never(config)


def _may_choose_the_same(one: LoaderConfig, other: LoaderConfig) -> bool:
    """Whether the same examples may be chosen of the same files."""
    match one, other:
        case DigitsConfig(), DigitsConfig():
            alike = (one.seed, one.test_fraction) == (other.seed, other.test_fraction)
            return not (alike and {one.split, other.split} == {"train", "test"})
        case NpzConfig(), NpzConfig():
            return one.features == other.features
        case TorchvisionLoaderConfig(), TorchvisionLoaderConfig():
            return one.split == other.split
        case PythonConfig(), PythonConfig():
            return bool(_normalised_value(one.model_extra) == _normalised_value(other.model_extra))
    return True


def _may_be_the_same(one: LoaderConfig, other: LoaderConfig) -> bool:
    """Whether two arrays of one file may be of the same records, by the keys that `_may_choose_the_same` compares."""
    return isinstance(one, NpzConfig) or _may_choose_the_same(one, other)


def _place(path: str, root: Path, volumes: Mapping[str, str]) -> Place:
    """Where a path leads. On a cluster a dataset's volume is mounted under its name, where relative paths start."""
    whole = posixpath.normpath(posixpath.join(str(root), path))
    below = posixpath.relpath(whole, str(root)).split("/")
    if below[0] in volumes:
        return (volumes[below[0]], *below[1:])
    return ("", *whole.split("/"))


def _overlap(one: Place, other: Place) -> bool:
    """Whether they are the same, or one is in the other."""
    return all(a == b for a, b in zip(one, other, strict=False))


def _overlap_here(one: Place, other: Place) -> bool:
    """Whether two places on this machine have the same content, by what is there."""
    first, second = (Path("/", *place) for place in (one, other))
    return _is_or_lies_in(first, second) or _is_or_lies_in(second, first)


def _is_or_lies_in(path: Path, other: Path) -> bool:
    try:
        whole = path.resolve(strict=True)
        return any(place.samefile(other) for place in (whole, *whole.parents))
    except (OSError, ValueError, RuntimeError):
        # What is not there, or cannot be looked at, is told by its name.
        return path.is_relative_to(other)


def _normalised_value(value: Any) -> Any:
    """A configuration with each text as if it were a path: of a function's arguments nobody knows which are."""
    match value:
        case str():
            return posixpath.normpath(value)
        case Mapping():
            return {key: _normalised_value(item) for key, item in value.items()}
        case list() | tuple():
            return [_normalised_value(item) for item in value]
    return value
