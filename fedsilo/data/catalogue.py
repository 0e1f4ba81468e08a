"""What a manifest may write under a dataset: the loaders, the partition schemes and their configuration.

This module imports neither torch nor scikit-learn, so that the command line and the operator can check a
manifest where no data and no learning library exist. Whether the data are there, and are what the job says,
is found by `fedsilo.data.loaders`, in the silo.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Literal

from pydantic import ConfigDict, Field, ValidationError

from fedsilo.api.faults import Fault, ManifestFaults
from fedsilo.api.messages import closest, faults_of
from fedsilo.data.configuration import (
    IN_MEMORY,
    Config,
    Flag,
    InMemoryFlag,
    Integer,
    Name,
    Number,
    PositiveNumber,
    Seed,
    Share,
)
from fedsilo.data.image_configuration import ImageFolderConfig, MaskFolderConfig
from fedsilo.data.table_configuration import CsvConfig, ParquetConfig, TableConfig

if TYPE_CHECKING:
    from fedsilo.api.datasets import DatasetSpec, PartitionSpec

Finding = tuple[str, object, str, str]
"""Path relative to the dataset, the value found there or `ABSENT_VALUE`, what is wrong with it, and the remedy."""

LOADER_NAMES = (
    "sklearn:digits",
    "npz",
    "npy",
    "csv",
    "parquet",
    "imagefolder",
    "maskfolder",
    "torchvision:<Dataset>",
    "python:<module>:<function>",
)


class DigitsConfig(Config):
    """The 1,797 handwritten digits of 8 x 8 pixels that scikit-learn carries."""

    split: Literal["train", "test", "all"] = Field("train", description="train, test or all")
    test_fraction: Share = Field(0.2, description="the share of samples held out as test, between 0 and 1")
    seed: Seed = Field(0, description="the seed of the permutation that precedes the split, 0 to 4294967295")


class NpzConfig(Config):
    """One `.npz` file with an array of features, an array of labels and perhaps one of the classes' names."""

    path: str = Field(min_length=1, description="the path of an .npz file")
    features: str = Field("images", min_length=1, description="the name of the features array in the file")
    labels: str = Field("labels", min_length=1, description="the name of the labels array in the file")
    classes: str = Field(
        "classes", min_length=1, description="the name of the array of the classes' names, if it is there"
    )
    person: Name | None = Field(
        None, description="the name of an array that says whose each example is, as whole numbers or texts"
    )
    in_memory: InMemoryFlag = IN_MEMORY


class NpyConfig(Config):
    """Two `.npy` files, one of features and one of labels."""

    features: str = Field(min_length=1, description="the path of the features' .npy file")
    labels: str = Field(min_length=1, description="the path of the labels' .npy file")
    person: Name | None = Field(
        None,
        description="the path of an .npy file that says whose each example is, as whole numbers or texts",
    )
    in_memory: InMemoryFlag = IN_MEMORY


class TorchvisionLoaderConfig(Config):
    """A classification dataset of torchvision that is constructed from a root folder and a split."""

    path: str = Field(min_length=1, description="torchvision's root folder")
    split: Literal["train", "test"] = Field("train", description="train or test")
    download: Flag = Field(False, description="true to let torchvision fetch missing files, otherwise false")


class PythonConfig(Config):
    """The keyword arguments of a function that returns features and labels; any are allowed."""

    model_config = ConfigDict(extra="allow")


LoaderConfig = (
    DigitsConfig
    | NpzConfig
    | NpyConfig
    | CsvConfig
    | ParquetConfig
    | ImageFolderConfig
    | MaskFolderConfig
    | TorchvisionLoaderConfig
    | PythonConfig
)


class LabelsConfig(Config):
    """`#C = k` of NIID-Bench and FedConcat: every silo owns the same number of classes."""

    labels_per_silo: Integer = Field(ge=1, description="how many classes each silo owns, at least 1")


class DirichletConfig(Config):
    """The partition `Dir(beta)` of NIID-Bench divides every class over the silos by one Dirichlet draw."""

    beta: PositiveNumber = Field(
        description="the Dirichlet concentration, above 0; smaller values skew labels more"
    )
    min_samples: Integer = Field(
        10, ge=0, description="the size that every silo must reach, or all is drawn again"
    )


class CreffPartitionConfig(Config):
    """Settings of CReFF's partition: long tail, Dirichlet over auxiliary workers, even recut; each stage can be left
    out.
    """

    imbalance: Number = Field(
        100.0, ge=1, description="largest class over smallest class (the imbalance factor), at least 1"
    )
    beta: PositiveNumber = Field(0.5, description="the Dirichlet concentration, above 0")
    long_tail: Flag = Field(True, description="true to thin classes out first, otherwise false")
    dirichlet: Flag = Field(True, description="true to skew labels, false to only shuffle")
    recut: Flag = Field(True, description="true to give every silo the same size, otherwise false")


class MapPartitionConfig(Config):
    """MAP's four scenes, all of which divide each class in proportion to a table of silos x classes."""

    variant: Literal["map", "shard", "dirichlet", "real"] = Field(
        "map", description="map, shard, dirichlet or real"
    )
    quantity_sigma: Number = Field(
        0.3, ge=0, description="the spread of the log-normal factor on silo sizes, 0 for none"
    )
    min_samples: Integer = Field(5, ge=1, description="silos with fewer samples are left empty, at least 1")
    test_fraction: Share = Field(
        0.2, description="the share of each silo's samples set aside as its local test data"
    )
    labels_per_silo: Integer = Field(
        2, ge=1, description="how many classes each silo owns (variant shard), at least 1"
    )
    beta: PositiveNumber = Field(0.5, description="the Dirichlet concentration (variant dirichlet), above 0")


class FedbrPartitionConfig(Config):
    """Settings of FedBR's partition: equal sizes; each silo draws its classes from one Dirichlet vector."""

    total_concentration: PositiveNumber = Field(
        0.1, description="the sum of the Dirichlet parameters over all classes, above 0"
    )
    prior: Literal["remaining", "uniform"] = Field(
        "remaining", description="remaining (class frequencies not yet handed out) or uniform"
    )


class IidConfig(Config):
    """One shuffle, cut evenly."""


PartitionConfig = (
    LabelsConfig
    | DirichletConfig
    | CreffPartitionConfig
    | MapPartitionConfig
    | FedbrPartitionConfig
    | IidConfig
)

_LOADERS: dict[str, type[LoaderConfig]] = {
    r"sklearn:digits": DigitsConfig,
    r"npz": NpzConfig,
    r"npy": NpyConfig,
    r"csv": CsvConfig,
    r"parquet": ParquetConfig,
    r"imagefolder": ImageFolderConfig,
    r"maskfolder": MaskFolderConfig,
    r"torchvision:[A-Za-z_]\w*": TorchvisionLoaderConfig,
    r"python:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*": PythonConfig,
}
_SCHEMES: dict[str, type[PartitionConfig]] = {
    "labels": LabelsConfig,
    "dirichlet": DirichletConfig,
    "creff": CreffPartitionConfig,
    "map": MapPartitionConfig,
    "fedbr": FedbrPartitionConfig,
    "iid": IidConfig,
}


def check_dataset(dataset: DatasetSpec) -> list[Finding]:
    """Everything in a dataset's specification that cannot be run; empty when nothing is wrong.

    Paths are relative to the dataset, for instance `partition.config.beta`. No file is touched.
    """
    model = _loader_model(dataset.loader)
    if model is None:
        remedy = f"use one of {', '.join(LOADER_NAMES)}"
        findings: list[Finding] = [("loader", dataset.loader, "is not a known loader", remedy)]
    else:
        findings = _findings(model, dataset.config, "config")
    if dataset.partition is not None:
        findings += _check_partition(dataset.partition, "partition.")
    return findings


def names_persons(dataset: DatasetSpec) -> bool | None:
    """Whether a dataset says whose each example is; None where only its reader knows, a function of Python."""
    model = _loader_model(dataset.loader)
    return None if model is PythonConfig else dataset.config.get("person") is not None


def listed_features(dataset: DatasetSpec) -> int | None:
    """How many features a table has by the columns and categories that its settings list; None where they do not."""
    if check_dataset(dataset):
        return None
    config = loader_config(dataset)
    return config.feature_count if isinstance(config, TableConfig) else None


def loader_config(dataset: DatasetSpec) -> LoaderConfig:
    """The typed configuration of a dataset's loader; ManifestInvalid where `check_dataset` has findings."""
    _refuse(check_dataset(dataset), f"dataset {dataset.name!r}")
    model = _loader_model(dataset.loader)
    assert model is not None, "check_dataset has refused unknown loaders"
    return model.model_validate(dataset.config)


def partition_config(partition: PartitionSpec) -> PartitionConfig:
    """The typed configuration of a partition; ManifestInvalid where it cannot be used."""
    _refuse(_check_partition(partition, ""), f"partition {partition.scheme!r}")
    return _SCHEMES[partition.scheme].model_validate(partition.config)


def _loader_model(loader: str) -> type[LoaderConfig] | None:
    return next((model for pattern, model in _LOADERS.items() if re.fullmatch(pattern, loader)), None)


def _check_partition(partition: PartitionSpec, prefix: str) -> list[Finding]:
    model = _SCHEMES.get(partition.scheme)
    if model is None:
        remedy = closest(partition.scheme, list(_SCHEMES))
        return [(f"{prefix}scheme", partition.scheme, "is not a known partition scheme", remedy)]
    return _findings(model, partition.config, f"{prefix}config")


def _findings(model: type[Config], config: dict[str, Any], path: str) -> list[Finding]:
    try:
        model.model_validate(config)
    except ValidationError as error:
        return [
            (fault.path, fault.value, fault.problem, fault.remedy)
            for fault in faults_of(error, model, file="", document="", under=path.split("."))
        ]
    return []


def _refuse(findings: list[Finding], what: str) -> None:
    if findings:
        raise ManifestFaults(Fault("", what, *finding) for finding in findings)
