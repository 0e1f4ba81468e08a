"""Scoring a trained model on a manifest's data."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fedsilo.api.allowed_imports import looking_at
from fedsilo.api.data import DataSpec
from fedsilo.api.job import FederatedJobSpec, LearningTaskSpec
from fedsilo.api.loading import JobManifest
from fedsilo.engine.scoring import load_test_set
from fedsilo.errors import DataInvalid, ManifestInvalid
from fedsilo.learning import saved
from fedsilo.learning.devices import pick_device, prepare_torch
from fedsilo.learning.evaluation import Evaluation
from fedsilo.learning.evaluation import evaluate as score
from fedsilo.learning.examples import Examples
from fedsilo.learning.metrics.chosen import ChosenMetrics
from fedsilo.learning.metrics.scores import Scores
from fedsilo.silo.examples import load_examples
from fedsilo.tasks.registry import DEFAULT, bind
from fedsilo.validation import Source, as_manifest


def evaluate(
    model: Path | str, manifest: JobManifest | Source, *, allow_imports: Collection[str] = ()
) -> dict[str, Evaluation | None]:
    """Scores of a model, by name of what it was scored on: the test set, or each silo's validation examples.

    :param model: `model.safetensors` of a job, or `personal.safetensors` of a silo, and its `.json` beside it.
    :param manifest: it names the data, the architecture and the learning task; relative paths start from its directory.
    :param allow_imports: modules, or `module:attribute`, that the manifest may name.
    :returns: None for a silo that holds no validation example.
    :raises ImportNotAllowed: when it names others.
    :raises ManifestInvalid: when the manifest or the model cannot be used, or do not fit each other.
    :raises DataInvalid: when the data cannot be read, or there are none to score on.
    """
    with looking_at("", allow_imports):
        federation = as_manifest(manifest)
        with looking_at(federation.file):
            network = _fitting_model(Path(model), federation)
            spec = federation.job.spec
            network.to(pick_device(spec.training.device))
            return _scores(network, spec, _examples(federation))


def open_model(path: Path, federation: JobManifest, count: int) -> tuple[nn.Module, Tensor]:
    """A model on the CPU, and so many of the examples that `evaluate` would score it on, (n, *input shape).

    Errors are those of `evaluate`.
    """
    with looking_at(federation.file):
        network, sets = _fitting_model(path, federation), _examples(federation)
    parts: list[Tensor] = []
    for examples in sets.values():
        if taken := min(count - sum(map(len, parts)), len(examples)):
            index = torch.arange(taken, device=examples.labels.device)
            parts.append(examples.batch(index)[0].cpu())
    return network, torch.cat(parts)


def _fitting_model(path: Path, federation: JobManifest) -> nn.Module:
    spec = federation.job.spec
    prepare_torch(spec.training.threads)
    network = saved.open_model(path, spec.model, spec.task)
    description = saved.read_description(path.with_suffix(".json"))
    _require_fit(path, description["data"], spec.data)
    _require_task(path, description.get("task"), spec.task)
    return network


def _require_fit(path: Path, trained: Mapping[str, Any], data: DataSpec) -> None:
    """Check that the model was trained for data of this form."""
    learned = trained.get("classes")
    classes: tuple[object, object] = learned, data.classes
    if isinstance(learned, list) and data.class_names is not None:
        classes = learned, list(data.class_names)
    elif isinstance(learned, list):  # one of the two says how many there are, and no more
        classes = len(learned), data.class_count
    elif data.class_names is not None:
        classes = learned, data.class_count
    shapes = trained["inputShape"], list(data.input_shape)
    for field, (found, asked) in (("classes", classes), ("inputShape", shapes)):
        if found != asked:
            raise ManifestInvalid(
                f"model {path}: {field}: {found}: the manifest's spec.data.{field} is {asked}; "
                "name the manifest of the job that trained this model, or one with data of the same form"
            )


def _require_task(path: Path, trained: Mapping[str, Any] | None, asked: LearningTaskSpec | None) -> None:
    """Check that the model has learned what the manifest's examples are scored by."""
    found, wanted = (trained or {}).get("name", DEFAULT.name), (asked or DEFAULT).name
    if found != wanted:
        raise ManifestInvalid(
            f"model {path}: task: {found}: the manifest's spec.task is {wanted}; name the manifest of the job that "
            "trained this model"
        )


def _examples(federation: JobManifest) -> dict[str, Examples]:
    """What to score on, by name: the test set, or each silo's validation examples.

    :raises DataInvalid: when the data cannot be read, or there are none.
    """
    spec, root = federation.job.spec, Path(federation.file).resolve().parent
    if (name := spec.evaluation.test_dataset) is not None:
        return {name: load_test_set(spec, root, pick_device(spec.training.device))}
    found = {silo.metadata.name: load_examples(spec, silo, root)[1] for silo in federation.silos}
    if not any(map(len, found.values())):
        raise DataInvalid(
            f"no silo of {', '.join(found)} holds a validation example; raise spec.data.validationFraction, or "
            "name a spec.evaluation.testDataset"
        )
    return found


def _scores(
    model: nn.Module, spec: FederatedJobSpec, examples: Mapping[str, Examples]
) -> dict[str, Evaluation | None]:
    """Score on each set; None where it has no example."""
    chosen, task = ChosenMetrics.of_job(spec), bind(spec.task, spec.data)

    def score_examples(given: Examples) -> Evaluation:
        return score(model, given, scores=Scores(chosen, task) if chosen.any else None, task=task)

    return {name: score_examples(given) if len(given) else None for name, given in examples.items()}


def pooled_evaluation(scores: Mapping[str, Evaluation | None]) -> Evaluation:
    """The score over the examples of all sets, as if they were one."""
    found = [score for score in scores.values() if score is not None]
    sums = {name: sum(score.sums[name] for score in found) for name in found[0].sums}
    parts = [score.scores for score in found if score.scores is not None]
    samples = sum(score.samples for score in found)
    return Evaluation(samples, sums, Scores.pooled_scores(parts) if parts else None)
