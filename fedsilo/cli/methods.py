"""`fedsilo methods` lists the methods that jobs can name, and what each declares. Needs no torch."""

from __future__ import annotations

import argparse
import json
import re
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path

from pydantic import BaseModel, ValidationError

from fedsilo.api.allowed_imports import looking_at, running
from fedsilo.api.job import FederatedJobSpec
from fedsilo.api.text import comma_separated, count_text
from fedsilo.api.type_text import type_text
from fedsilo.cli.allow_import import add_allow_import
from fedsilo.cli.columns import columns
from fedsilo.cli.job_traffic import job_traffic
from fedsilo.errors import FedsiloError, ImportNotAllowed, ManifestInvalid
from fedsilo.methods import registry
from fedsilo.methods.differential_privacy import uncovered_payloads
from fedsilo.methods.interface import EVALUATE
from fedsilo.methods.method import Method
from fedsilo.methods.reading import Mean, Sums, Updates
from fedsilo.methods.step import EVALUATION, Payload, Step
from fedsilo.payload_kinds import count_samples
from fedsilo.transforms.plan import JobPlan
from fedsilo.transforms.update_noise.conflicts import uncovered_silo
from fedsilo.wire.tensors import DTYPES

ROUNDS = 10
"""Rounds of the job whose phases are shown."""

WIDTH = 100

SUPPORTED_HEADING = "supported methods"
REFERENCE = "reference methods, as their papers have them, to compare with"
OTHER_HEADING = "methods of other packages"

MECHANISMS = {
    "DP-SGD": "clipped gradients of sampled examples, with noise in every local step",
    "Gaussian": "noise on sums over the silo's examples",
}
"""What each mechanism is, for people."""

READS = {Mean: "a mean over silos", Sums: "sums over silos", Updates: "each silo's update"}
"""What a server half may read of updates, for people."""

DIMENSIONS = {
    "classes": "spec.data.classes",
    "feature": "width of the classifier's input",
    "projected": "2 x feature",
    "stacked": "feature x clusters, at most those of the configuration",
}
"""Meaning of the symbolic dimensions."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The method, or none for the list; a manifest whose bytes are counted."""
    parser.add_argument("name", nargs="?", metavar="NAME", help="describe this method")
    parser.add_argument(
        "-f",
        "--file",
        type=Path,
        help="count the bytes of the job in this manifest; needs NAME, builds the model",
    )
    add_allow_import(parser)


def run(args: argparse.Namespace) -> int:
    """Print the list or one method, and what a job of it moves.

    :raises ManifestInvalid: when there is no method of that name, or the manifest's job names another.
    """
    if args.name is None:
        if args.file is not None:
            raise ManifestInvalid(
                f"{args.file}: needs the name of its job's method before it; write fedsilo methods NAME -f FILE"
            )
        print(_list())
        return 0
    with running():  # a person has named the method
        described = describe(registry.get(args.name))
    if args.file is not None:
        named = registry.permission_of(args.name)
        with looking_at(args.file, [] if named is None else [named]):
            described = f"{described}\n\n{job_traffic(args.name, args.file)}"
    print(described)
    return 0


def _list() -> str:
    """A table for each tier, the supported methods first."""
    tables: dict[str, list[tuple[str, str, str, str]]] = {
        SUPPORTED_HEADING: [("method", "when to use it", "a silo sends", "the aggregator reads")],
        REFERENCE: [("method", "title", "a silo sends", "the aggregator reads")],
        OTHER_HEADING: [("method", "title", "a silo sends", "the aggregator reads")],
    }
    for name in registry.names():
        tier, row = _summary(name)
        tables[tier].append(row)
    return "\n\n".join(f"{tier}\n\n{columns(rows)}" for tier, rows in tables.items() if len(rows) > 1)


def _summary(name: str) -> tuple[str, tuple[str, str, str, str]]:
    """Tier and row of a method."""
    package = registry.package_of(name)
    try:
        method = registry.get(name)
    except ImportNotAllowed:
        return OTHER_HEADING, (
            name,
            f"of {package}; `fedsilo methods {name}` imports and describes it",
            "",
            "",
        )
    except FedsiloError as error:
        return OTHER_HEADING if package else REFERENCE, (name, f"cannot be used: {error}", "", "")
    bound = _by_default(method)
    steps = _steps(bound)
    kinds = dict.fromkeys(payload.kind for step in steps.values() for payload in step.payloads)
    facts = ", ".join(kinds), _read(bound)
    if package is not None:
        return OTHER_HEADING, (name, method.title, *facts)
    if method.use_when is None:
        return REFERENCE, (name, method.title, *facts)
    return SUPPORTED_HEADING, (name, method.use_when, *facts)


def _tier(method: type[Method]) -> Iterator[str]:
    """What the declaration says of when to use the method; nothing of one of another package that does not say."""
    if method.use_when is not None:
        yield textwrap.fill(f"supported: use it when {method.use_when}", WIDTH)
    elif method.__module__.startswith(registry.BUILT_IN):
        yield "reference: as its paper has it, to compare with"


def _read(method: Method | None) -> str:
    if method is None:
        return ""
    return READS[method.reads] if _payloads(method) else "figures only"


def _payloads(method: Method) -> list[Payload]:
    return [payload for step in method.steps().values() for payload in step.payloads]


def describe(method: type[Method]) -> str:
    """Everything that a declaration states, as text for people."""
    bound = _by_default(method)
    steps = _steps(bound)
    sections = (
        [f"{method.name}: {method.title}", *_tier(method), "", textwrap.fill(method.citation, WIDTH)],
        ["phases", *_phases(bound)],
        ["what a silo sends, by step", *_sends(steps)],
        ["bytes of an update, without header and signature", *_bytes(steps)],
        ["what that reveals about a silo's classes", *_disclosure(steps)],
        ["what the aggregator reads of that", *_aggregation(bound)],
        ["what of that differential privacy covers", *_privacy(bound)],
        [
            "what is kept between rounds",
            f"  at the aggregator  {method.keeps.aggregator}",
            f"  in the silo        {method.keeps.silo}",
            *_own_model(bound),
        ],
        ["data needed at the aggregator, besides a test set", f"  {_public_data(bound)}"],
        ["spec.method.config", *_fields(method.Config)],
    )
    return "\n\n".join("\n".join(section) for section in sections)


def _aggregation(method: Method | None) -> Iterator[str]:
    if method is None:
        yield "  as the configuration says, which has no default"
    elif not _payloads(method):
        yield "  figures only: there are no tensors"
    elif method.reads is Updates:
        yield "  each silo's update by itself"
    else:
        yield f"  {READS[method.reads]}, in which no silo's tensors need to be seen by themselves"
    if method is not None and _secure_variant(method).reads is not Updates:
        yield "  with spec.aggregation.secure: sums over all silos only"


def _privacy(method: Method | None) -> Iterator[str]:
    if method is None:
        yield "  as the configuration says, which has no default"
        return
    if missing := uncovered_payloads(method):
        yield f"  not all: {comma_separated(missing)} has no mechanism, so that a job which asks for it is refused"
    else:
        yield from (
            f"  {kind}: {MECHANISMS[mechanism]}" for kind, mechanism in method.training.mechanisms.items()
        )
    if why := uncovered_silo(method):
        yield f"  unit silo: not in a method {why}"
    else:
        yield "  unit silo: noise on the clipped change of each silo's model"


def _public_data(method: Method | None) -> str:
    if method is None or method.public_data is None:
        return "none"
    return f"spec.aggregation.publicDataset, of public {method.public_data}; without it a job is refused"


def _own_model(method: Method | None) -> Iterator[str]:
    if method is not None and method.models.personal is not None:
        yield "  A silo's own model never leaves it; the silo finds it as personal.safetensors in its storage."
        yield "  Its accuracy is reported as the silo's policy.personalAccuracy permits."


def _by_default(method: type[Method]) -> Method | None:
    """The method in a small job without a configuration; None where a job must write one."""
    try:
        return method(_example(method), method.Config())
    except ValidationError:
        return None


def _secure_variant(method: Method) -> Method:
    """The method in the same job with `spec.aggregation.secure`."""
    aggregation = method.spec.aggregation.model_copy(update={"secure": True})
    return type(method)(method.spec.model_copy(update={"aggregation": aggregation}), method.config)


def _steps(method: Method | None) -> Mapping[str, Step]:
    if method is None:
        return {EVALUATE: EVALUATION}
    scoring = {name: step for name, step in JobPlan(method).steps.items() if name == EVALUATE}
    return {**scoring, **method.steps()}


def _phases(method: Method | None) -> Iterator[str]:
    if method is None:
        yield "  as the configuration says, which has no default"
        return
    yield f"  with training.rounds: {ROUNDS} and the default configuration:"
    rows = [
        (
            f"  {phase.name}",
            count_text(phase.rounds, "round"),
            f"of step {phase.step}",
            "all silos" if phase.everyone else "the silos drawn",
        )
        for phase in method.phases()
    ]
    yield textwrap.indent(columns(rows), "  ")
    if not method.models.scored:
        return
    always = method.models.personal is not None
    when = "after a round, always" if always else "after a round, in a job without evaluation.testDataset"
    yield f"  and an exchange of step evaluate {when}"


def _example(method: type[Method]) -> FederatedJobSpec:
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
    rows = [("  step", "kind", "block", "shape", "dtype", "bytes")]
    for name, step in steps.items():
        facts = [_payload(payload) for payload in step.payloads]
        if step.metrics:
            facts.append(("metrics", ", ".join(step.names), "one number each", "", ""))
        for position, fact in enumerate(facts or [("nothing", "", "", "", "")]):
            rows.append(("" if position else f"  {name}", *fact))
    yield columns(rows)
    sizes = [size for step in steps.values() for payload in step.payloads for size in payload.shape]
    for symbol in dict.fromkeys(size for size in sizes if isinstance(size, str)):
        yield f"  {symbol}: {DIMENSIONS.get(symbol, 'a dimension of the method')}"


def _payload(payload: Payload) -> tuple[str, str, str, str, str]:
    if payload.name is None:
        return payload.kind, "every tensor of the model", "the model's", "the model's", "the model's"
    sizes = [str(size) for size in payload.shape]
    size = " x ".join([f"{DTYPES[payload.dtype].itemsize} B", *sizes])
    shape = " x ".join(sizes) or "one number"
    if payload.per_class:
        return payload.kind, f"{payload.name}/<class>", shape, payload.dtype, f"{size} per class"
    return payload.kind, payload.name, shape, payload.dtype, size


def _bytes(steps: Mapping[str, Step]) -> Iterator[str]:
    for name, step in steps.items():
        parts = [_formula(payload) for payload in step.payloads]
        yield f"  {name}: {' + '.join(parts) or '0'}"
    payloads = [payload for step in steps.values() for payload in step.payloads]
    if any(payload.name is None for payload in payloads):
        yield "  model: the bytes of its tensors, 4 B x parameters in float32; -f FILE counts those of a job"
    if any(payload.per_class for payload in payloads):
        yield "  at most: a class with too few samples is left out"


def _formula(payload: Payload) -> str:
    """The bytes of a payload; a model's follow from the manifest, see `-f`."""
    if payload.name is None:
        return "model"
    per_class = ["classes"] if payload.per_class else []
    return " x ".join([f"{DTYPES[payload.dtype].itemsize} B", *map(str, payload.shape), *per_class])


def _disclosure(steps: Mapping[str, Step]) -> Iterator[str]:
    payloads = [payload for step in steps.values() for payload in step.payloads]
    if count_samples({payload.kind for payload in payloads}):
        yield "  counts per class of the silo's samples, where there are minSamplesPerClass or more"
    elif any(payload.per_class for payload in payloads):
        yield "  no counts; which classes have minSamplesPerClass samples or more can be seen"
    else:
        yield "  nothing; every update states the number of samples of all classes together"


def _fields(config: type[BaseModel]) -> Iterator[str]:
    schema = config.model_json_schema()
    required = set(schema.get("required", ()))
    for name, field in schema.get("properties", {}).items():
        default = "required" if name in required else f"default {json.dumps(field.get('default', {}))}"
        yield f"  {name}: {_plain_text(type_text(field))}; {default}"
        if meaning := field.get("description"):
            yield textwrap.fill(meaning, WIDTH, initial_indent=" " * 6, subsequent_indent=" " * 6)
    if not schema.get("properties"):
        yield "  has no fields"


def _plain_text(markdown: str) -> str:
    return re.sub(r"\[(\w+)\]\(#\w+\)", r"\1", markdown).replace("`", "")
