"""`fedsilo methods`: the methods that jobs can name, and what each declares. Needs no torch."""

from __future__ import annotations

import argparse
import json
import re
import textwrap
from collections.abc import Iterator, Mapping

from pydantic import BaseModel, ValidationError

from fedsilo.cli.columns import columns
from fedsilo.errors import FedsiloError
from fedsilo.manifests.job import FederatedJobSpec
from fedsilo.manifests.reference import type_words
from fedsilo.methods import registry
from fedsilo.methods.contract import EVALUATION
from fedsilo.methods.interface import EVALUATE, Method, Payload, Step

ROUNDS = 10
"""Rounds of the job whose phases are shown."""

WIDTH = 100


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """One argument: the method, or none for the list."""
    parser.add_argument("name", nargs="?", metavar="NAME", help="describe this method")


def run(args: argparse.Namespace) -> int:
    """Print the list or one method.

    :raises ManifestInvalid: when there is no method of that name.
    """
    print(_list() if args.name is None else describe(registry.get(args.name)))
    return 0


def _list() -> str:
    rows = [("method", "title", "a silo sends"), *map(_summary, registry.names())]
    return columns(rows)


def _summary(name: str) -> tuple[str, str, str]:
    try:
        method = registry.get(name)
    except FedsiloError as error:
        return name, f"cannot be used: {error}", ""
    steps = _steps(method, _default_config(method))
    kinds = dict.fromkeys(payload.kind for step in steps.values() for payload in step.payloads)
    return name, method.title, ", ".join(kinds)


def describe(method: Method) -> str:
    """Everything that a declaration says, for a person."""
    config = _default_config(method)
    sections = (
        [f"{method.name}: {method.title}", "", textwrap.fill(method.citation, WIDTH)],
        ["phases", *_phases(method, config)],
        ["what a silo sends, by step", *_sends(_steps(method, config))],
        ["spec.method.config", *_fields(method.Config)],
    )
    return "\n\n".join("\n".join(section) for section in sections)


def _default_config(method: Method) -> BaseModel | None:
    """The configuration where a job writes none; None where it must write one."""
    try:
        return method.Config()
    except ValidationError:
        return None


def _steps(method: Method, config: BaseModel | None) -> Mapping[str, Step]:
    return {EVALUATE: EVALUATION, **(method.steps(config) if config else {})}


def _phases(method: Method, config: BaseModel | None) -> Iterator[str]:
    if config is None:
        yield "  as the configuration says, which has no default"
        return
    yield f"  with training.rounds: {ROUNDS} and the default configuration:"
    rows = [
        (
            f"  {phase.name}",
            f"{phase.rounds} round{'s' if phase.rounds > 1 else ''}",
            f"of step {phase.step}",
            "all silos" if phase.everyone else "the silos drawn",
        )
        for phase in method.phases(_example(method), config)
    ]
    yield textwrap.indent(columns(rows), "  ")
    yield "  and, in a job without evaluation.testDataset, an exchange of step evaluate after a round"


def _example(method: Method) -> FederatedJobSpec:
    """A small job, since the phases of most methods follow from the job's rounds."""
    return FederatedJobSpec.model_validate(
        {
            "method": {"name": method.name},
            "model": {"name": "lenet"},
            "data": {"dataset": "data", "classes": 10, "inputShape": [1, 32, 32]},
            "training": {"rounds": ROUNDS},
            "silos": {"refs": [{"namespace": "default", "name": name} for name in ("north", "south")]},
        }
    )


def _sends(steps: Mapping[str, Step]) -> Iterator[str]:
    rows = []
    for name, step in steps.items():
        facts = [_payload(payload) for payload in step.payloads]
        if step.metrics:
            facts.append(("metrics", ", ".join(step.metrics)))
        for position, fact in enumerate(facts or [("nothing", "")]):
            rows.append(("" if position else f"  {name}", *fact))
    yield columns(rows)
    symbols = {size for step in steps.values() for payload in step.payloads for size in payload.shape}
    if {"classes", "feature"} & symbols:
        yield "  classes is spec.data.classes, feature the width of the classifier's input"


def _payload(payload: Payload) -> tuple[str, str]:
    if payload.name is None:
        return payload.kind, "every tensor of the model that the task is about"
    shape = " x ".join(map(str, payload.shape)) if payload.shape else "one number"
    if payload.per_class:
        return payload.kind, f"{payload.name}/<class>, one block per class: {payload.dtype}, {shape}"
    return payload.kind, f"{payload.name}: {payload.dtype}, {shape}"


def _fields(config: type[BaseModel]) -> Iterator[str]:
    schema = config.model_json_schema()
    required = set(schema.get("required", ()))
    for name, field in schema.get("properties", {}).items():
        default = "required" if name in required else f"default {json.dumps(field.get('default', {}))}"
        yield f"  {name}: {_plain(type_words(field))}; {default}"
        if meaning := field.get("description"):
            yield textwrap.fill(meaning, WIDTH, initial_indent=" " * 6, subsequent_indent=" " * 6)
    if not schema.get("properties"):
        yield "  has no fields"


def _plain(markdown: str) -> str:
    return re.sub(r"\[(\w+)\]\(#\w+\)", r"\1", markdown).replace("`", "")
