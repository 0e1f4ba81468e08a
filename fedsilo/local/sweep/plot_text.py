"""Title and labels of a sweep's plot, as a person would write them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from fedsilo.api.text import count_text
from fedsilo.local.sweep.grid import setting_text, short_names
from fedsilo.local.sweep.runs import GridRun

_ABBREVIATIONS = {
    "auroc": "AUROC",
    "f1": "F1",
    "iou": "IoU",
    "mae": "mean absolute error",
    "rmse": "root mean squared error",
}


def plot_title(runs: Sequence[GridRun]) -> str:
    """The job, and over how many seeds and partitions each line is a mean."""
    job = runs[0].point.manifest.job.metadata.name
    counts = {
        "seed": len({run.point.seed for run in runs}),
        "partition": len({run.point.partition_seed for run in runs}),
    }
    varied = [count_text(count, noun) for noun, count in counts.items() if count > 1]
    return f"{job}: mean and standard deviation over {' of '.join(varied)}" if varied else job


def labels(groups: Sequence[Sequence[GridRun]]) -> list[str]:
    """What sets each combination apart, in words: the fields of which there are several values.

    :param groups: runs that differ in their seed alone, together.
    """
    values = [group[0].point.values for group in groups]
    differing = [path for path in values[0] if any(other[path] != values[0][path] for other in values)]
    names = short_names(differing)
    return [
        ", ".join(_spoken_setting(names[path], combination[path]) for path in differing)
        for combination in values
    ]


def spoken_metric(name: str) -> str:
    """A metric as an axis calls it."""
    return " ".join(_ABBREVIATIONS.get(word, word) for word in name.split("_"))


def _spoken_setting(name: str, value: Any) -> str:
    """A field with its value; a choice by name, such as a method, is known by that name alone."""
    if isinstance(value, Mapping) and isinstance(value.get("name"), str):
        settings = value.get("config") or {}
        inner = ", ".join(_spoken_setting(key, given) for key, given in settings.items())
        return f"{value['name']} ({inner})" if inner else value["name"]
    if name.rpartition(".")[2] == "name" and isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return (
            ", ".join(_spoken_setting(key, given) for key, given in value.items())
            or f"no {_spoken_name(name)}"
        )
    if value is None or value is False:
        return f"no {_spoken_name(name)}"
    if value is True:
        return _spoken_name(name)
    return f"{_spoken_name(name)} {setting_text(value)}"


def _spoken_name(name: str) -> str:
    """A field's path in words: `optimizer.learningRate` is the optimizer learning rate."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name.replace(".", " ")).lower()
