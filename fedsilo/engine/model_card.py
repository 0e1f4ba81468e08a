"""`MODEL_CARD.md` says what a job's model is, for people and for whoever publishes it.

It has the form of Hugging Face's model cards: metadata in YAML, then Markdown (M. Mitchell et al. Model Cards for Model
Reporting. FAccT 2019). Everything in it follows from the job, `model.json`, the history and the names of the data that
silos announced; nothing of it depends on time, and nothing is said of a single silo but its name, in which rounds it
answered, and its scores where all silos permit that. It is for reading: signatures and checks are those of
`model.json` and `provenance.json`.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from importlib import metadata
from pathlib import Path
from typing import Any

from fedsilo.api.figures import main_first
from fedsilo.api.job import FederatedJobSpec
from fedsilo.api.lost_silos import ended_without
from fedsilo.api.scores import ScoresStatus
from fedsilo.api.text import count_text
from fedsilo.data.schema import Schema
from fedsilo.engine.card_metadata import front_matter, task_name
from fedsilo.engine.data_description import data_section, silos_classes
from fedsilo.engine.markdown import escape_markdown, table, yaml_block
from fedsilo.engine.provenance import FILE as PROVENANCE
from fedsilo.engine.record import Record, counted_silos, lost_silos, total_samples
from fedsilo.files.durable import write_durably
from fedsilo.learning.metrics.chosen import class_scope
from fedsilo.methods.main_metric import main_metric, whole_evaluation
from fedsilo.methods.method import Method
from fedsilo.transforms.plan import JobPlan

log = logging.getLogger("fedsilo.engine")

FILE = "MODEL_CARD.md"

MAX_CLASSES = 1000
"""Classes that have a line of their own: of more there are no figures by class."""

SHOWN_SECTIONS = ("model", "training", "aggregation", "participation", "evaluation", "privacy")
"""Sections of the specification that say how the model was made."""

OUTCOMES = {"samples": "rounds answered", "failed": "failed", "missing": "not waited for"}
"""Field of a round's record -> what it means for the silos that it names."""

PACKAGES = ("fedsilo", "torch", "numpy")


@dataclass(frozen=True)
class CardContext:
    """What a card is made from.

    :param description: content of `model.json`.
    :param history: of all completed rounds.
    :param schemata: silo -> what it announced of its data, as far as silos did.
    :param provenance: SHA-256 of `provenance.json`; None where nothing was signed.
    :param versions: package -> version of those that computed the result.
    """

    method: Method
    description: Mapping[str, Any]
    history: Sequence[Record]
    schemata: Mapping[str, Schema] = field(default_factory=dict)
    provenance: str | None = None
    versions: Mapping[str, str] = field(default_factory=dict)

    @property
    def spec(self) -> FederatedJobSpec:
        """Specification of the job whose model the card describes."""
        return self.method.spec

    @property
    def record(self) -> Record:
        """The line of the history whose model this is."""
        number = self.description.get("round")
        return next((line for line in self.history if line["round"] == number), self.history[-1])

    @property
    def silos(self) -> tuple[str, ...]:
        """Silos that were asked for anything, by name."""
        fields = ("samples", "failed", "missing", "bytes")
        return tuple(
            sorted({silo for line in self.history for name in fields for silo in line.get(name, ())})
        )

    def class_label(self, label: int) -> str:
        """What people read of a class: its name, as the job or the silos have it, or its number."""
        names = self.spec.data.class_names or silos_classes(self.schemata) or ()
        return names[label] if label < len(names) else str(label)


def write_model_card(
    directory: Path, method: Method, history: Sequence[Record], schemata: Mapping[str, Schema]
) -> None:
    """Write the card of the result in a directory; again the same bytes."""
    description = json.loads((directory / "model.json").read_bytes())
    sealed = directory / PROVENANCE
    digest = hashlib.sha256(sealed.read_bytes()).hexdigest() if sealed.is_file() else None
    versions = {package: metadata.version(package) for package in PACKAGES}
    sources = CardContext(method, description, history, schemata, digest, versions)
    try:
        text = model_card(sources)
    except Exception:  # what a third party's method says of itself must not cost the model
        log.exception("the model card could not be written; please report it")
        return
    write_durably(directory / FILE, text.encode())


def model_card(sources: CardContext) -> str:
    """Text of the model card, metadata in YAML and then Markdown."""
    parts = [_summary(sources), data_section(sources.spec, sources.schemata, _samples(sources))]
    if sources.method.models.scored:
        parts += [_metrics(sources), _classes(sources)]
    parts += [_making(sources), _rounds(sources), _provenance(sources), _use(sources), _limits(sources)]
    sections = ["\n".join(lines) for lines in parts if lines]
    return front_matter(sources.method, sources.description) + "\n\n".join(sections) + "\n"


def _summary(sources: CardContext) -> list[str]:
    spec, method = sources.spec, sources.method
    rounds, silos = count_text(len(sources.history), "round"), count_text(len(sources.silos), "silo")
    what = escape_markdown(method.title)
    if method.models.shared.is_model:
        what = f"Network `{sources.description['model']['name']}` for {escape_markdown(task_name(spec))}"
    elif method.models.personal is not None:
        what = (
            f"{what}: a network `{spec.model.name}` of each silo's own for {escape_markdown(task_name(spec))}"
        )
    lost = reduce(lost_silos, sources.history, dict[str, str]())
    without = ended_without(sorted(lost), len(sources.silos))
    ended = "" if without is None else f" The job {escape_markdown(without)}."
    made = f"made by federated learning in {rounds} from the data of {silos}, which stayed where they were."
    return [f"# {escape_markdown(sources.description['job']['name'])}", "", f"{what}, {made}{ended}"]


def _samples(sources: CardContext) -> int | None:
    """Examples of all silos that answered together; None where that would tell how many one silo has."""
    if sources.spec.privacy.differential_privacy is not None:
        return None  # which are not told
    return total_samples(sources.record) if len(counted_silos(sources.record)) > 1 else None


def _metrics(sources: CardContext) -> list[str]:
    metrics, evaluation = sources.description["metrics"], sources.spec.evaluation
    where = "the silos' own validation examples"
    if evaluation.test_dataset is not None:
        where = f"the aggregator's test set `{evaluation.test_dataset}`"
    lines = ["## Metrics", ""]
    if not sources.method.models.shared.is_model:
        where = "each silo's own validation examples, its own model"
    if not metrics:
        return [*lines, "The model was not scored."]
    main = main_metric(sources.method)
    names = main_first(sorted(metrics), main)
    rows = [(f"`{name}`", _figure(metrics[name])) for name in names]
    scope = class_scope(sources.spec)
    scores = ScoresStatus.of_record(sources.record)
    basis = "" if scores is None else f", {scores.basis}"
    return [
        *lines,
        f"On {where}{escape_markdown(basis)}, after round {sources.record['round']}:",
        "",
        *table(("metric", "value"), rows),
        *([] if scope is None else ["", f"Here {escape_markdown(scope)}."]),
        *([] if scores is None else _scores_by_silo(scores, {**sources.record, "score": main or ""})),
    ]


def _scores_by_silo(scores: ScoresStatus, record: Record) -> list[str]:
    """Each silo's own scores, where all permit it."""
    names = scores.names(record)
    rows = [
        (escape_markdown(silo), str(examples), *map(_figure, figures))
        for silo, examples, figures in scores.rows(record)
    ]
    heads = ("silo", "examples", *(f"`{name}`" for name in names))
    return ["", "### By silo", "", *table(heads, rows)] if rows else []


def _classes(sources: CardContext) -> list[str]:
    figures = sources.record.get("perClass", {})
    count = max(map(len, figures.values()), default=0)
    if not 0 < count <= MAX_CLASSES:
        return []
    names = sorted(figures)
    rows = [
        (escape_markdown(sources.class_label(label)), *(_figure(figures[name][label]) for name in names))
        for label in range(count)
    ]
    return ["### By class", "", *table(("class", *(f"`{name}`" for name in names)), rows)]


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _making(sources: CardContext) -> list[str]:
    method, spec = sources.method, sources.spec
    document = spec.model_dump(by_alias=True, mode="json", exclude_none=True)
    sections = SHOWN_SECTIONS if method.models.scored else ("participation", "privacy")
    shown = {"method": document["method"], **{name: document[name] for name in sections if name in document}}
    paper = [escape_markdown(method.citation), ""] if method.citation else []
    return ["## Method", "", f"{escape_markdown(method.title)}.", "", *paper, *yaml_block(shown)]


def _rounds(sources: CardContext) -> list[str]:
    number, best = sources.description.get("round"), whole_evaluation(sources.method).best
    planned = max(exchange.round for exchange in JobPlan(sources.method).exchanges)
    said = f"{len(sources.history)} of {count_text(planned, 'round')} were run."
    if best is not None and number is not None:
        said += f" The model is that of round {number}, which is best by `{best.metric}`."
    rows = [
        (
            escape_markdown(silo),
            *(str(sum(silo in line[name] for line in sources.history)) for name in OUTCOMES),
        )
        for silo in sources.silos
    ]
    heads = ("silo", *OUTCOMES.values())
    return ["## Rounds and participants", "", said, "", *table(heads, rows)]


def _provenance(sources: CardContext) -> list[str]:
    job = sources.description["job"]
    updates = sum(len(line["digests"]) for line in sources.description["updates"])
    rows = [
        ("job", f"`{job['name']}`, uid `{job['uid']}`"),
        ("SHA-256 of the specification", f"`{job['specDigest']}`"),
        ("SHA-256 of `model.safetensors`", f"`{sources.description['sha256']}`"),
    ]
    if sources.provenance is not None:
        rows.append((f"SHA-256 of `{PROVENANCE}`", f"`{sources.provenance}`"))
    rows.append(("versions", ", ".join(f"{name} {version}" for name, version in sources.versions.items())))
    said = "It was computed in one process: nothing was sent, and nothing is signed."
    if sources.provenance is not None:
        said = (
            f"`model.json` names the digests of the {count_text(updates, 'signed update')} that it was made from; "
            f"`fedsilo verify` checks them by `{PROVENANCE}`."
        )
    return ["## Provenance", "", said, "", *table(("", ""), rows)]


def _use(sources: CardContext) -> list[str]:
    if sources.method.models.personal is not None and not sources.method.models.shared.is_model:
        found = "Each silo has its model as `personal.safetensors` with `personal.json` in its own storage;"
        return ["## Use", "", found, "`fedsilo.load_model` reads it there. No model leaves a silo."]
    if not sources.method.models.shared.is_model:
        return ["## Use", "", "`model.json` has the figures as a table, `model.safetensors` as tensors."]
    shape = ", ".join(map(str, sources.spec.data.input_shape))
    inputs = "raw values: the model's preprocessing is part of it" if _preprocessed(sources) else "values"
    return [
        "## Use",
        "",
        "With `model.json` beside it, and `pip install 'fedsilo[learning]'`:",
        "",
        "```python",
        "import fedsilo",
        "",
        'model = fedsilo.load_model("model.safetensors")',
        f"outputs = model(inputs)  # inputs: (n, {shape}), {inputs}",
        "```",
    ]


def _preprocessed(sources: CardContext) -> bool:
    return sources.spec.data.preprocessing is not None


def _limits(sources: CardContext) -> list[str]:
    return ["## Limits", "", *(f"- {line}" for line in _limit_lines(sources))]


def _limit_lines(sources: CardContext) -> Iterator[str]:
    spec, recalls = sources.spec, sources.record.get("perClass", {}).get("recall", ())
    never = [
        escape_markdown(sources.class_label(label)) for label, recall in enumerate(recalls) if recall == 0
    ]
    if never:
        yield f"It finds no example at all of {', '.join(never[:MAX_CLASSES])}."
    yield from map(escape_markdown, sources.description.get("remarks", ()))
    if sources.method.models.shared.is_model:
        if not recalls:
            yield "There is no recall by class here: a class that it never finds would not show."
        if spec.evaluation.test_dataset is None:
            yield "It was scored by the silos that trained it. Of data of other institutions nothing is known."
        else:
            yield f"Its scores hold for data like `{spec.evaluation.test_dataset}`."
    elif sources.method.models.personal is not None:
        yield "Each model was scored by the silo that trained it. Of data of other institutions nothing is known."
    private = spec.privacy.differential_privacy
    if private is None:
        yield "No differential privacy was applied: what was released may tell something of single training examples."
    elif private.unit == "silo":
        yield f"Differential privacy covers what was made of the silos' models: {private}."
        yield "Each silo's own model had only a part of that noise. Which silos took part is not protected."
    else:
        yield f"Differential privacy covers all that silos sent: {private}. Their number of examples was not told."
