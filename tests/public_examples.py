"""A public dataset for jobs of methods that learn from one at the aggregator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from fedsilo.methods import registry

NAME = "public"


def balanced_dataset(
    shape: Sequence[int], classes: int, each: int = 3, first: int = 0, present: Sequence[int] | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """A dataset with as many examples of every class; what sets a class apart is one of the numbers.

    :param first: number that the classes begin with.
    :param present: the only ones that there are examples of.
    """
    labels = np.repeat(np.arange(classes) if present is None else present, each)
    noise = np.random.default_rng(5).normal(0, 0.3, (len(labels), prod(shape)))
    features = noise + np.eye(prod(shape))[labels % prod(shape)]
    return features.astype(np.float32).reshape(-1, *shape), labels + first


def dataset(shape: Sequence[int], classes: int, **more: Any) -> dict[str, Any]:
    """The dataset as a manifest has it."""
    config = {"shape": list(shape), "classes": classes} | more
    return {"name": NAME, "loader": f"python:{__name__}:balanced_dataset", "config": config}


def with_public_data(spec: dict[str, Any]) -> dict[str, Any]:
    """The specification of a job with a public dataset, where its method needs one and it names none."""
    name = spec["method"]["name"]
    needed = name in registry.names() and isinstance(registry.get(name).public_data, str)
    if not needed or "publicDataset" in spec.get("aggregation", {}):
        return spec
    aggregator: Mapping[str, Any] = spec.get("aggregator", {})
    held = dataset(spec["data"]["inputShape"], spec["data"]["classes"])
    return spec | {
        "aggregation": {**spec.get("aggregation", {}), "publicDataset": NAME},
        "aggregator": {**aggregator, "datasets": [*aggregator.get("datasets", []), held]},
    }
