"""Manifests that name functions of Python in every field that takes one: model, learning task, trainer, metric, the
loaders of a silo and of the aggregator, and a method of a package beside them.

By: somebody whose manifest a person checks before anything is run.

Must: `validate` says in which file each lies, and imports nothing; `check`, `evaluate`, `export` and `methods -f` end
with one line that says what would run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from attacks.handed_over import MODEL, HandedOver

RUNS_ONCE = True

TORCHSCRIPT = ("export", "--model", MODEL, "-f", "job.yaml", "--torchscript", "model.pt")
EVALUATE = ("evaluate", "--model", MODEL, "-f", "job.yaml")
METHODS = ("methods", "fedavg", "-f", "job.yaml")
CHECK = ("check", "-f", "job.yaml")
VALIDATE = ("validate", "-f", "job.yaml")

Spec = dict[str, Any]
Command = tuple[str, ...]


def _hold_custom_data(spec: Spec, use: str) -> None:
    """The aggregator holds data of a loader of one's own."""
    spec["aggregator"]["datasets"] = [{"name": "held", "loader": "python:beside:load"}]
    spec["evaluation" if use == "testDataset" else "aggregation"] = {use: "held"}


CHANGES: Mapping[str, tuple[Callable[[Spec], object], tuple[Command, ...]]] = {
    "model": (
        lambda spec: spec.update(model={"name": "python:beside:network"}),
        (EVALUATE, TORCHSCRIPT, METHODS),
    ),
    "parts of a model": (
        lambda spec: spec.update(
            model={"name": "python:beside:network", "parameters": {"frozen": ["*.weight"]}}
        ),
        (CHECK, METHODS),
    ),
    "task": (lambda spec: spec.update(task={"name": "python:beside:Task"}), (EVALUATE, CHECK, METHODS)),
    "metric": (lambda spec: spec["evaluation"].update(metrics=["python:beside:Metric"]), (EVALUATE,)),
    "test set": (lambda spec: _hold_custom_data(spec, "testDataset"), (EVALUATE, TORCHSCRIPT, CHECK)),
}
"""Field -> what names code there, and the commands that would run it."""


def attack(target: HandedOver) -> None:
    for change, commands in CHANGES.values():
        at = _copy(target)
        target.edit_manifest(at / "job.yaml", change)
        target.edit_json(at / "model.json", lambda document: document.pop("model"))
        _describe_as_the_manifest(target, at)
        for command in commands:
            target.expect_refused("would run beside:", *command, at=at)
        target.expect_opened(*VALIDATE, at=at)
    at = _copy(target)
    documents = list(yaml.safe_load_all((at / "job.yaml").read_text()))
    documents[0]["spec"]["datasets"][0] |= {"loader": "python:beside:load"}
    (at / "job.yaml").write_text(yaml.safe_dump_all(documents))
    for command in (EVALUATE, CHECK):
        target.expect_refused("would run beside:load", *command, at=at)
    at = _copy(target)
    target.edit_manifest(at / "job.yaml", lambda spec: spec["training"].update(trainer="python:beside:train"))
    for command in (CHECK, EVALUATE, METHODS):
        target.expect_opened(*command, at=at)


def _copy(target: HandedOver) -> Path:
    at = target.copy()
    (at / "beside.py").write_text(target.planted_code)
    return at


def _describe_as_the_manifest(target: HandedOver, at: Path) -> None:
    """A model of the same names, so that nothing else is wrong."""
    spec = list(yaml.safe_load_all((at / "job.yaml").read_text()))[-1]["spec"]
    named = {name: spec[name] for name in ("model", "task") if name in spec}
    target.edit_json(at / "model.json", lambda document: document.update(named))
