"""`fedsilo evaluate`: score a trained model on the test set of a manifest, or on each silo's validation examples."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedsilo.api.loading import JobManifest
from fedsilo.cli.columns import columns
from fedsilo.json_files import read_json
from fedsilo.validation import load_manifest

if TYPE_CHECKING:
    from fedsilo.learning.evaluation import Evaluation


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
    federation = load_manifest(args.file)

    from fedsilo.local.evaluation import evaluate

    scores = evaluate(args.model, federation)
    if args.json:
        sha256 = read_json(args.model.with_suffix(".json"))["sha256"]
        print(json.dumps(_document(args.model, sha256, federation, scores)))
    else:
        print(_table(scores))
    return 0


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
