"""What an institution says of its datasets: their names, how they are read, and where they are."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from fedsilo.api.class_names import ClassAliases
from fedsilo.api.common import (
    MAX_SILOS,
    DatasetName,
    Dimension,
    Fields,
    FreeForm,
    Integer,
    Label,
    Reference,
    Text,
    check_one_of,
    invalid_value,
)

Scheme = Literal["labels", "dirichlet", "creff", "map", "fedbr", "iid"]


class PartitionSpec(Fields):
    """A benchmark partition, in which this silo holds one part of a dataset that is split by a published rule."""

    scheme: Scheme = Field(description="Rule of the split; docs/data.md gives the source of each.")
    silos: Integer = Field(ge=1, le=MAX_SILOS, description="Number of parts.")
    index: Integer = Field(ge=0, description="Part of this silo, from 0.")
    seed: Integer = Field(
        default=0, ge=0, le=2**32 - 1, description="Seed of the split; the same in every silo."
    )
    config: FreeForm = Field(default_factory=dict, description="Settings of the rule.")

    @model_validator(mode="after")
    def _index_within(self) -> Self:
        if self.index >= self.silos:
            raise invalid_value(
                f"is not below the {self.silos} parts of silos",
                f"use 0 to {self.silos - 1}",
                "index",
                value=self.index,
            )
        return self


class VolumeSpec(Fields):
    """Where the data are; mounted in the trainer only, and read-only."""

    persistent_volume_claim: Label | None = Field(default=None, description="Claim in the silo's namespace.")
    host_path: Text | None = Field(default=None, description="Directory of the node.")

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        check_one_of(
            persistentVolumeClaim=self.persistent_volume_claim is not None,
            hostPath=self.host_path is not None,
        )
        path = self.host_path
        if path is not None and (not path.startswith("/") or ".." in path.split("/")):
            problem, remedy = (
                "is no absolute path without '..'",
                "write the directory's whole path, such as /srv/data",
            )
            raise invalid_value(problem, remedy, "hostPath", value=path)
        return self


class DatasetSpec(Fields):
    """One dataset of a silo: a name that jobs ask for, and how to read it."""

    name: DatasetName = Field(description="Name under which jobs ask for the dataset.")
    loader: Reference = Field(
        min_length=1,
        description="Reader: npz, npy, csv, parquet, imagefolder, maskfolder, sklearn:digits, torchvision:Name, "
        "python:module:function.",
    )
    config: FreeForm = Field(default_factory=dict, description="Settings of the loader.")
    partition: PartitionSpec | None = Field(
        default=None, description="Benchmark partition; the whole when absent."
    )
    volume: VolumeSpec | None = Field(default=None, description="Where the data are on a cluster.")
    classes: Integer | None = Field(
        default=None, ge=2, le=100_000, description="Classes, for the offer; a job with fewer is refused."
    )
    input_shape: tuple[Dimension, ...] | None = Field(
        default=None,
        min_length=1,
        max_length=4,
        description="Shape of one example, for the offer; a job with another is refused.",
    )
    class_aliases: ClassAliases | None = Field(
        default=None, description="Names of classes in these data, each with the name that jobs have for it."
    )


def check_unique_names(datasets: tuple[DatasetSpec, ...]) -> None:
    """Refuse two datasets of one name."""
    seen: set[str] = set()
    for position, dataset in enumerate(datasets):
        if dataset.name in seen:
            remedy = "rename one or remove it"
            raise invalid_value(
                "is the name of two datasets", remedy, "datasets", position, "name", value=dataset.name
            )
        seen.add(dataset.name)
