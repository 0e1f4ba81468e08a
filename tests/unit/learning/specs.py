"""Small manifests' parts for the tests of this folder."""

from __future__ import annotations

from typing import Any

from fedsilo.api.data import DataSpec
from fedsilo.api.job import ModelSpec
from fedsilo.api.training import TrainingSpec


def model_spec(name: str, **config: object) -> ModelSpec:
    return ModelSpec(name=name, config=config)


def data_spec(*shape: int, classes: int = 10) -> DataSpec:
    return DataSpec(dataset="d", classes=classes, input_shape=shape)


def training_spec(**fields: Any) -> TrainingSpec:
    return TrainingSpec.model_validate({"rounds": 10, **fields})
