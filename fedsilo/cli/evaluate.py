"""`fedsilo evaluate` scores a trained model on the test set of a manifest, or on each silo's validation examples."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedsilo.api.figures import main_first
from fedsilo.api.job import FederatedJobSpec
from fedsilo.api.loading import JobManifest
from fedsilo.cli.allow_import import add_allow_import
from fedsilo.cli.columns import columns
from fedsilo.learning.metrics.catalogue import METRICS, pooled_name
from fedsilo.learning.metrics.chosen import class_scope
from fedsilo.methods import registry
from fedsilo.methods.main_metric import main_metric
from fedsilo.validation import load_manifest

if TYPE_CHECKING:
    from fedsilo.learning.evaluation import Evaluation


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the model, the manifest and the output format to the arguments of `fedsilo evaluate`."""
    parser.add_argument(
        "--model",
        type=Path,
        required=True,
        help="model.safetensors of a job, or personal.safetensors of a silo, and its .json beside it",
    )
    parser.add_argument(
        "-f", "--file", type=Path, required=True, help="the manifest that names model and data"
    )
    add_allow_import(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Print the model's scores as a table or as JSON.

    :raises ManifestInvalid: when the manifest or the model cannot be used, or do not fit each other.
    :raises DataInvalid: when the data cannot be read, or there are none to score on.
    """
    federation = load_manifest(args.file)

    from fedsilo.learning.saved import read_description
    from fedsilo.local.evaluation import evaluate, pooled_evaluation

    scores = evaluate(args.model, federation)
    total = pooled_evaluation(scores)
    if args.json:
        sha256 = read_description(args.model.with_suffix(".json"))["sha256"]
        print(json.dumps(_document(args.model, sha256, federation, scores, total)))
    else:
        print("\n\n".join(_tables(federation.job.spec, scores, total)))
    return 0


def _document(
    path: Path,
    sha256: str,
    federation: JobManifest,
    scores: Mapping[str, Evaluation | None],
    total: Evaluation,
) -> dict[str, Any]:
    test_set = federation.job.spec.evaluation.test_dataset
    silos = [
        {"name": name, "samples": 0, **dict.fromkeys(total.sums)}
        if score is None
        else {"name": name, **_figures(score)}
        for name, score in scores.items()
    ]
    return {
        "model": {"path": str(path), "sha256": sha256},
        "testDataset": test_set,
        "silos": [] if test_set else silos,
        **_figures(total),
    }


def _figures(score: Evaluation) -> dict[str, Any]:
    means = {name: total / score.samples for name, total in score.sums.items()}
    found = {"samples": score.samples, **means}
    return found if score.scores is None else {**found, **score.figures.record()}


def _tables(
    spec: FederatedJobSpec, scores: Mapping[str, Evaluation | None], total: Evaluation
) -> Iterator[str]:
    data, main = spec.data, main_metric(registry.bind(spec))
    names = main_first(total.metrics, main and pooled_name(main))
    rows: list[Sequence[str]] = [("", "samples", *names)]
    for name, score in scores.items():
        rows.append((name, "0", *["-"] * len(names)) if score is None else _row(name, names, score))
    if len(scores) > 1:
        rows.append(_row("all", names, total))
    scope = class_scope(spec)
    yield columns(rows, right=range(1, len(names) + 2)) + ("" if scope is None else f"\n{scope}")
    if per_class := total.figures.per_class:
        values = zip(*per_class.values(), strict=True)
        by_class = [(data.class_label(label), *map(_share, found)) for label, found in enumerate(values)]
        yield columns([("class", *per_class), *by_class], right=range(1, len(per_class) + 1))
    if (confusion := total.figures.confusion) is not None:
        counts = [
            (data.class_label(label), *(f"{count:,}" for count in row)) for label, row in enumerate(confusion)
        ]
        head = ("class \\ answer", *map(data.class_label, range(len(confusion))))
        yield columns([head, *counts], right=range(1, len(confusion) + 1))


def _row(name: str, names: Sequence[str], score: Evaluation) -> Sequence[str]:
    return name, f"{score.samples:,}", *(_metric_text(metric, score.metrics.get(metric)) for metric in names)


def _metric_text(name: str, value: float | None) -> str:
    described = METRICS.get(name)
    if value is not None and (described is None or not described.unit_range):
        return f"{value:.4f}"
    return _share(value)


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"
