"""The scores that each silo reaches by itself, and one model on all silos' data: the job's training, the same number
of rounds, no exchange.

Run as `python -m fedsilo.local.baseline MANIFEST DATA_ROOT OUTPUT`. It reads every silo's data in one process, which
only a machine that holds them all can do; a real federation cannot and need not.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from fedsilo.api.job import FederatedJobSpec
from fedsilo.api.loading import JobManifest, load
from fedsilo.data.statistics import FeatureStatistics, merge_statistics
from fedsilo.engine.initial_weights import initial_weights
from fedsilo.engine.scoring import load_test_set
from fedsilo.files.json_files import write_json
from fedsilo.learning.custom_training import ExampleSet, TrainingData
from fedsilo.learning.devices import pick_device, prepare_torch
from fedsilo.learning.evaluation import Evaluation, evaluate
from fedsilo.learning.examples import Examples
from fedsilo.learning.losses import task_divisor, task_loss
from fedsilo.learning.metrics.catalogue import over_silos
from fedsilo.learning.metrics.chosen import ChosenMetrics
from fedsilo.learning.metrics.scores import Scores
from fedsilo.learning.models import build_module, load_tree, to_tree, with_preprocessing
from fedsilo.learning.optimizers import OptimizerState
from fedsilo.learning.parameters import freeze, parts_of
from fedsilo.learning.pooled_examples import pooled_examples
from fedsilo.learning.preprocessing import Preprocessing, standardised_targets, without_targets
from fedsilo.learning.seeding import derive_seed
from fedsilo.learning.training import LocalTraining, fit
from fedsilo.local.evaluation import pooled_evaluation
from fedsilo.logs import start_logging
from fedsilo.methods.components.feature_statistics import pool_examples
from fedsilo.methods.state import StoredTree
from fedsilo.process import exit_with_parent, run_until_done
from fedsilo.silo.context import trained_by_the_job
from fedsilo.silo.examples import load_examples
from fedsilo.tasks.registry import bind
from fedsilo.transforms.preprocessing.numbers import numbers_of, standardised_outputs

POOLED = "pooled"
"""Whose training the one of all silos' examples is: no silo's, whose names have a namespace."""


def train_locally(
    spec: FederatedJobSpec,
    silo: str,
    data: tuple[Examples, Examples],
    initial: StoredTree | None = None,
    prepared: Mapping[str, np.ndarray] | None = None,
) -> nn.Module:
    """The job's model, trained on one silo's examples for as many rounds as the job has, each of as many local epochs
    or steps.

    :param silo: whose examples they are; its batches come in an order of their own.
    :param data: examples to train on, and those that are held out.
    :param initial: the job's initial weights, where it has a file of them.
    :param prepared: numbers of the preprocessing, where the job does any.
    """
    model = build_module(spec.model, spec.data, derive_seed(spec.training.seed, "model"), spec.task)
    task = bind(spec.task, spec.data)
    loss, divisor = task_loss(task, data[0].labels), task_divisor(task, data[0].labels)
    parts = parts_of(spec.model.parameters, model)
    if initial is not None:
        load_tree(model, initial.load())
    if parts is not None:
        freeze(model, parts.frozen)
    if prepared is not None:
        train, held_out = (replace(one, labels=standardised_targets(one.labels, prepared)) for one in data)
        data = train, held_out
        with_preprocessing(model, Preprocessing(without_targets(prepared)))
    model.to(pick_device(spec.training.device))
    training = spec.training
    kept = OptimizerState() if training.optimizer.state == "keep" else None
    state: Mapping[str, np.ndarray] = {}
    for number in range(1, training.rounds + 1):
        seed = derive_seed(spec.training.seed, silo, "batches", "alone", number)
        plan = LocalTraining.of(training, round=number, rounds=training.rounds, seed=seed)
        if training.trainer is None:
            fit(model, data[0], replace(plan, kept=kept, divisor=divisor), loss=loss)
            continue
        sets = TrainingData(*map(ExampleSet, data))
        outcome = trained_by_the_job(spec, model, sets, plan, (number, training.rounds), state)
        load_tree(model, to_tree(outcome.model))
        state = outcome.state
    return model if prepared is None else _giving_raw_outputs(spec, model, prepared)


def _giving_raw_outputs(
    spec: FederatedJobSpec, trained: nn.Module, prepared: Mapping[str, np.ndarray]
) -> nn.Module:
    """A network of these weights that gives predictions in the units of raw targets."""
    model = build_module(spec.model, spec.data, 0, spec.task)
    load_tree(model, to_tree(trained))
    with_preprocessing(model, Preprocessing(prepared))
    return model.to(pick_device(spec.training.device))


def scores(federation: JobManifest, root: Path) -> dict[str, Any]:
    """Scores on the test set, or on all silos' validation examples without one.

    :returns: `alone`, of each silo's own model, and `pooled`, of one model on all silos' examples, each with the
        number of examples that it was trained on, `samples`.
    """
    spec = federation.job.spec
    initial, task = initial_weights(spec, root), bind(spec.task, spec.data)
    chosen = ChosenMetrics.of_job(spec)
    loaded = {str(silo): load_examples(spec, silo, root) for silo in federation.silos}
    if spec.evaluation.test_dataset is not None:
        tests = [load_test_set(spec, root, pick_device(spec.training.device))]
    else:
        tests = [validation for _, validation in loaded.values() if len(validation)]
    prepared = _prepared_numbers(spec, [train for train, _ in loaded.values()])

    def scores_of(name: str, data: tuple[Examples, Examples]) -> dict[str, Any]:
        model = train_locally(spec, name, data, initial, prepared)
        scored = [evaluate(model, test, scores=Scores(chosen, task), task=task) for test in tests]
        return {
            **pooled_evaluation(dict(zip(map(str, range(len(tests))), scored, strict=True))).metrics,
            **({} if spec.evaluation.test_dataset else _over_silos(scored, chosen)),
            "samples": len(data[0]),
        }

    alone: list[dict[str, Any]] = []
    for silo in federation.silos:
        data = loaded[str(silo)]
        counts = {}
        if task.single_label:
            counts = {"classes": data[0].labels.bincount(minlength=spec.data.class_count).tolist()}
        alone.append({**scores_of(str(silo), data), "name": silo.metadata.name, **counts})
    train, validation = (pooled_examples(parts) for parts in zip(*loaded.values(), strict=True))
    return {"alone": alone, "pooled": scores_of(POOLED, (train, validation))}


def _over_silos(scored: Sequence[Evaluation], chosen: ChosenMetrics) -> dict[str, float]:
    """Mean and spread over silos of the metrics of which a federation reports these."""
    found: dict[str, float] = {}
    for metric in chosen.by_silo:
        if values := [each.metrics[metric] for each in scored if metric in each.metrics]:
            mean, spread = over_silos(metric)
            found |= {mean: float(np.mean(values)), spread: float(np.std(values))}
    return found


def _prepared_numbers(spec: FederatedJobSpec, train: Sequence[Examples]) -> Mapping[str, np.ndarray] | None:
    """Numbers of the job's preprocessing by all silos together, so that only the training is each silo's own."""
    if spec.data.preprocessing is None:
        return None
    outputs, targets = standardised_outputs(spec), None
    if outputs:
        parts = (FeatureStatistics.of(examples.labels.cpu().numpy()) for examples in train)
        targets = merge_statistics(parts, outputs)
    return numbers_of(spec.data.preprocessing, pool_examples(train, spec.data), targets)


def main(argv: list[str] | None = None) -> int:
    """Write the scores of silos alone and of their data pooled; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("manifest", "root", "output"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--exit-with-parent", action="store_true", help="end when standard input is closed")
    args = parser.parse_args(argv)
    start_logging()
    if args.exit_with_parent:
        exit_with_parent()
    return run_until_done(lambda: _run(args.manifest, args.root, args.output))


def _run(manifest: Path, root: Path, output: Path) -> None:
    federation = load(manifest)
    training = federation.job.spec.training
    prepare_torch(training.threads, training.repeatable)
    write_json(output, scores(federation, root))


if __name__ == "__main__":
    sys.exit(main())
