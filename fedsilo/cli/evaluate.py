"""`fedsilo evaluate`: score a trained model on the test set of a manifest, or on each silo's validation examples."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedsilo.api.job import DataSpec
from fedsilo.api.loading import JobManifest
from fedsilo.cli.columns import columns
from fedsilo.durable import read_json
from fedsilo.errors import DataInvalid, ManifestInvalid
from fedsilo.validation import load_and_validate

if TYPE_CHECKING:
    from fedsilo.learning.evaluation import Evaluation
    from fedsilo.learning.examples import Examples
    from fedsilo.learning.models import Model


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument(
        "--model",
        type=Path,
        required=True,
        help="model.safetensors of a job, or personal.safetensors of a silo, and its .json beside it",
    )
    parser.add_argument("-f", "--file", type=Path, required=True, help="the manifest that names the data")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Print the scores.

    :raises ManifestInvalid: when the manifest or the model cannot be used, or do not fit each other.
    :raises DataInvalid: when the data cannot be read, or there are none to score on.
    """
    federation = load_and_validate(args.file)
    spec = federation.job.spec

    from fedsilo.learning.devices import pick_device, prepare_torch
    from fedsilo.learning.saved import load_model

    prepare_torch(spec.training.threads)
    model = load_model(args.model)
    trained = read_json(args.model.with_suffix(".json"))
    _require_fit(args.model, trained["data"], spec.data)
    model.to(pick_device(spec.training.device))
    scores = _scores(model, _examples(federation, args.file.resolve().parent))
    if args.json:
        print(json.dumps(_document(args.model, trained["sha256"], federation, scores)))
    else:
        print(_table(scores))
    return 0


def _require_fit(path: Path, trained: Mapping[str, Any], data: DataSpec) -> None:
    """A model answers only the question that it was trained for."""
    for field, asked in (("classes", data.classes), ("inputShape", list(data.input_shape))):
        if trained[field] != asked:
            raise ManifestInvalid(
                f"model {path}: {field}: {trained[field]}: the manifest's spec.data.{field} is {asked}; "
                "name the manifest of the job that trained this model, or one with data of the same form"
            )


def _examples(federation: JobManifest, root: Path) -> dict[str, Examples]:
    """What to score on, by name: the test set, or each silo's validation examples."""
    from fedsilo.engine.scoring import load_test_set
    from fedsilo.learning.devices import pick_device
    from fedsilo.silo.examples import load_examples

    spec = federation.job.spec
    if (name := spec.evaluation.test_dataset) is not None:
        return {name: load_test_set(spec, root, pick_device(spec.training.device))}
    return {silo.metadata.name: load_examples(spec, silo, root)[1] for silo in federation.silos}


def _scores(model: Model, examples: Mapping[str, Examples]) -> dict[str, Evaluation | None]:
    """Score on each set; None where it has no example."""
    from fedsilo.learning.evaluation import evaluate

    if not any(map(len, examples.values())):
        raise DataInvalid(
            f"no silo of {', '.join(examples)} holds a validation example; raise spec.data.validationFraction, or "
            "name a spec.evaluation.testDataset"
        )
    return {name: evaluate(model, given) if len(given) else None for name, given in examples.items()}


def _mean(scores: Mapping[str, Evaluation | None]) -> dict[str, Any]:
    """Accuracy and loss over all examples, which is the mean of the sets weighted by their samples."""
    found = [score for score in scores.values() if score is not None]
    samples = sum(score.samples for score in found)
    return {
        "samples": samples,
        "accuracy": sum(score.correct for score in found) / samples,
        "loss": sum(score.loss * score.samples for score in found) / samples,
    }


def _document(
    path: Path, sha256: str, federation: JobManifest, scores: Mapping[str, Evaluation | None]
) -> dict[str, Any]:
    test_set = federation.job.spec.evaluation.test_dataset
    silos = [
        {"name": name, "samples": 0, "accuracy": None, "loss": None}
        if score is None
        else {"name": name, "samples": score.samples, "accuracy": score.accuracy, "loss": score.loss}
        for name, score in scores.items()
    ]
    return {
        "model": {"path": str(path), "sha256": sha256},
        "testDataset": test_set,
        "silos": [] if test_set else silos,
        **_mean(scores),
    }


def _table(scores: Mapping[str, Evaluation | None]) -> str:
    rows: list[Sequence[str]] = [("", "samples", "accuracy", "loss")]
    for name, score in scores.items():
        rows.append((name, "0", "-", "-") if score is None else _row(name, vars(score)))
    if len(scores) > 1:
        rows.append(_row("all", _mean(scores)))
    return columns(rows, right=(1, 2, 3))


def _row(name: str, score: Mapping[str, Any]) -> Sequence[str]:
    return name, f"{score['samples']:,}", f"{score['accuracy']:.1%}", f"{score['loss']:.4f}"
