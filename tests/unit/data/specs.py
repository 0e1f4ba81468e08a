"""Short ways to write the manifests that the tests of this package need."""

from __future__ import annotations

from typing import Any

from fedsilo.api.data import DataSpec
from fedsilo.api.datasets import DatasetSpec, PartitionSpec


def part(scheme: str, silos: int, seed: int = 0, index: int = 0, **config: Any) -> PartitionSpec:
    return PartitionSpec.model_validate(
        {"scheme": scheme, "silos": silos, "index": index, "seed": seed, "config": config}
    )


def dataset(loader: str, partition: PartitionSpec | None = None, **config: Any) -> DatasetSpec:
    return DatasetSpec(name="scans", loader=loader, config=config, partition=partition)


def data(*input_shape: int, classes: int = 10) -> DataSpec:
    return DataSpec(dataset="scans", classes=classes, input_shape=input_shape)
