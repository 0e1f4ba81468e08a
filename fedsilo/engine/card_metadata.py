"""The metadata of a model card: YAML with the fields that Hugging Face's Hub reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from fedsilo.api.job import FederatedJobSpec
from fedsilo.api.json_yaml import JsonDumper
from fedsilo.methods.method import Method
from fedsilo.tasks.registry import kind_of

IMAGE, TABLE = 3, 1
"""Dimensions of an example."""

_PIPELINES = {
    ("classification", IMAGE): "image-classification",
    ("classification", TABLE): "tabular-classification",
    ("multilabel", IMAGE): "image-classification",
    ("multilabel", TABLE): "tabular-classification",
    ("regression", TABLE): "tabular-regression",
    ("segmentation", IMAGE): "image-segmentation",
}
"""Learning task and dimensions of an example -> the Hub's name of what the model is for."""


def front_matter(method: Method, description: Mapping[str, Any]) -> str:
    """The metadata between their two lines of dashes."""
    spec = method.spec
    fields: dict[str, Any] = {
        "library_name": "fedsilo",
        "tags": ["federated-learning", method.name, f"fedsilo-task:{kind_of(spec.task)}"],
    }
    pipeline = pipeline_tag(spec)
    if method.models.shared.is_model and pipeline is not None:
        fields["pipeline_tag"] = pipeline
    if method.models.shared.is_model and description["metrics"]:
        fields["model-index"] = [_results(spec, description, pipeline)]
    text = yaml.dump(fields, Dumper=JsonDumper, sort_keys=False, allow_unicode=True, width=100)
    return f"---\n{text}---\n\n"


def pipeline_tag(spec: FederatedJobSpec) -> str | None:
    """The Hub's name of what the model is for; None where it has none."""
    kind = kind_of(spec.task)
    if kind == "language":
        next_token = (spec.task.config if spec.task else {}).get("predict", "next-token") == "next-token"
        return "text-generation" if next_token else "text-classification"
    return _PIPELINES.get((kind, len(spec.data.input_shape)))


def task_name(spec: FederatedJobSpec) -> str:
    """What the model learns, in few words."""
    return spec.task_summary if spec.task is not None else f"classification, {spec.task_summary}"


def _results(spec: FederatedJobSpec, description: Mapping[str, Any], pipeline: str | None) -> dict[str, Any]:
    scored = spec.evaluation.test_dataset
    name = f"{spec.data.dataset}, validation examples of the silos" if scored is None else scored
    return {
        "name": description["job"]["name"],
        "results": [
            {
                "task": {"type": pipeline or "other", "name": task_name(spec)},
                "dataset": {"type": spec.data.dataset, "name": name},
                "metrics": [
                    {"type": metric, "value": value}
                    for metric, value in sorted(description["metrics"].items())
                ],
            }
        ],
    }
