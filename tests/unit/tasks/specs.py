"""Learning tasks for the tests of this folder and others."""

from __future__ import annotations

from typing import Any

from fedsilo.api.data import DataSpec
from fedsilo.api.job import LearningTaskSpec
from fedsilo.tasks.interface import LearningTask
from fedsilo.tasks.registry import bind


def task_spec(name: str, **config: object) -> LearningTaskSpec:
    return LearningTaskSpec(name=name, config=config)


def data_of(*shape: int, **fields: Any) -> DataSpec:
    return DataSpec(dataset="d", input_shape=shape, **fields)


def task_of(name: str, data: DataSpec, **config: object) -> LearningTask:
    return bind(task_spec(name, **config), data)
