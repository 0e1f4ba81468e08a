"""The runs of the campaign, and the lines that they leave."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.privacy import inversion, membership
from benchmarks.privacy.federation import (
    SHAPES,
    VICTIM,
    AttackedJob,
    ExchangeView,
    Images,
    load,
    members,
    observe,
)
from benchmarks.tables.results import machine
from fedsilo.methods.creff.config import WEIGHT
from fedsilo.methods.state import Tree

EPSILONS = (None, 8.0, 3.0, 1.0)

VIEWS = {"update": "the victim's update", "sum": "the sum of all four"}
"""What the aggregator sees: each update, or what secure aggregation leaves of them."""

TRAINING: dict[str, Any] = {
    "rounds": 20,
    "localEpochs": 2,
    "optimizer": {"learningRate": 0.1, "momentum": 0, "weightDecay": 0},
}

JOBS: dict[str, dict[str, Any]] = {
    "fedavg": {"training": TRAINING},
    "ccvr": {"training": TRAINING, "method": {"config": {"covariance": "none"}}},
    "creff": {"training": TRAINING | {"rounds": 10}},
}
"""Methods whose updates are asked who is in them."""

ONE_STEP = {"rounds": 1, "localSteps": 1, "optimizer": {"learningRate": 0.1, "momentum": 0, "weightDecay": 0}}
FEW_ROUNDS = {"fedavg": 20, "ccvr": 100, "creff": 100}
"""Candidates where images are sought: the victim's half is the batch of its one step, or some five of each class."""

LEARNED_TRAINING = {
    "rounds": 5,
    "localEpochs": 5,
    "optimizer": {"learningRate": 0.1, "momentum": 0, "weightDecay": 0},
}


@dataclass(frozen=True)
class Cell:
    """A job that is run so many times, and whose updates are attacked."""

    dataset: str
    method: str
    epsilon: float | None
    runs: int


def campaign(dataset: str, runs: int, folder: Path, path: Path) -> None:
    """Run what the file has no lines of, and append these."""
    done = {Cell(line["dataset"], line["method"], line["epsilon"], line["runs"]) for line in read(path)}
    for cell in cells(dataset, runs):
        if cell in done:
            continue
        found = _inversions(cell, folder) if cell.method.endswith("inversion") else _memberships(cell, folder)
        stamp = {"date": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"), "machine": machine()}
        own = {"dataset": cell.dataset, "method": cell.method, "epsilon": cell.epsilon, "runs": cell.runs}
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            for line in found:
                file.write(json.dumps({**own, **line, **stamp}) + "\n")
        print(f"{dataset}, {cell.method}, epsilon {cell.epsilon}: done", file=sys.stderr, flush=True)


def read(path: Path) -> list[dict[str, Any]]:
    """Lines of the file, as far as they are there."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def cells(dataset: str, runs: int) -> Iterator[Cell]:
    """Everything of a dataset, without protection first.

    Averaged gradients have no mechanism, so that no job may ask for privacy of them.
    """
    for epsilon in EPSILONS:
        for method in (*JOBS, *(f"{method} inversion" for method in JOBS)):
            if epsilon is None or not method.startswith("creff"):
                yield Cell(dataset, method, epsilon, runs)


def _memberships(cell: Cell, folder: Path) -> list[dict[str, Any]]:
    attacked = AttackedJob(cell.dataset, cell.method, JOBS[cell.method], epsilon=cell.epsilon)
    truth = np.stack([members(run, attacked.candidates) for run in range(cell.runs)])
    accuracies, scores = [], dict[str, list[np.ndarray]]()
    for run in range(cell.runs):
        accuracy, seen = observe(attacked, run, folder)
        accuracies.append(accuracy)
        for view in VIEWS:
            scores.setdefault(view, []).append(_scores(attacked, seen, view, folder))
    lines = []
    for view, rows in scores.items():
        given = np.stack(rows)
        for attack, found in (
            ("threshold", given),
            ("likelihood ratio", membership.likelihood_ratios(given, truth)),
        ):
            reached = membership.success(found, truth)
            each = [membership.success(found[run], truth[run]).auc for run in range(cell.runs)]
            lines.append(
                {
                    "attack": attack,
                    "view": view,
                    "auc": reached.auc,
                    "deviation": float(np.std(each)),
                    "true_positives": reached.true_positives,
                    "accuracy": float(np.mean(accuracies)),
                }
            )
    return lines


def _scores(attacked: AttackedJob, seen: Any, view: str, folder: Path) -> np.ndarray:
    """(candidates,) score of each candidate in one run."""
    candidates, auxiliary = (_part(attacked, part, folder) for part in ("candidates", "auxiliary"))
    if attacked.method == "fedavg":
        last: ExchangeView = seen["train"]
        return membership.confidence(membership.network(attacked, _blocks(last, "model", view)), candidates)
    if attacked.method == "ccvr":
        last = seen["statistics"]
        model = membership.network(attacked, last.sent["model"])
        points, known = (membership.features(model, images) for images in (candidates, auxiliary))
        disclosed, name = _blocks(last, "class_means", view), "mean"
    else:
        last = seen["train"]
        model = membership.network(attacked, last.sent["model"])
        head = dict(last.sent["head"])
        points, known = (membership.gradients(model, head, images) for images in (candidates, auxiliary))
        disclosed, name = _blocks(last, "averaged_gradients", view), WEIGHT
    return membership.leaning(candidates, points, auxiliary, known, disclosed, name)


def _inversions(cell: Cell, folder: Path) -> list[dict[str, Any]]:
    method = cell.method.removesuffix(" inversion")
    step = ONE_STEP if method == "fedavg" else LEARNED_TRAINING
    few = FEW_ROUNDS[method]
    batch = few // 2 if method == "fedavg" else 10
    attacked = AttackedJob(cell.dataset, method, {"training": step | {"batchSize": batch}}, few, cell.epsilon)
    own, strange = dict[str, list[np.ndarray]](), dict[str, list[np.ndarray]]()
    for run in range(cell.runs):
        _, seen = observe(attacked, run, folder)
        images, truth = _part(attacked, "candidates", folder)[0], members(run, few)
        for view in VIEWS:
            found = _images(attacked, seen, view)
            own.setdefault(view, []).append(inversion.recovery_decibels(found, images[truth]))
            strange.setdefault(view, []).append(inversion.recovery_decibels(found, images[~truth]))
    return [
        {
            "attack": "inversion",
            "view": view,
            "psnr": _best_figure(own[view]),
            "others": _best_figure(strange[view]),
            "recognised": float(np.mean(np.concatenate(own[view]) >= inversion.RECOGNITION_DECIBELS))
            * few
            / 2,
            "images": few // 2,
        }
        for view in VIEWS
    ]


def _images(attacked: AttackedJob, seen: Any, view: str) -> np.ndarray:
    """(n, *shape) what the attacker makes of one run."""
    shape = SHAPES[attacked.dataset]
    if attacked.method == "fedavg":
        last: ExchangeView = seen["train"]
        return inversion.of_update(last.sent["model"], _blocks(last, "model", view), shape)
    if attacked.method == "ccvr":
        last = seen["statistics"]
        means = _blocks(last, "class_means", view)
        wanted = [array for name, array in means.items() if name.startswith("mean/")]
    else:
        last = seen["train"]
        found = inversion.feature_directions(_blocks(last, "averaged_gradients", view), WEIGHT)
        wanted = list(found.values())
    if not wanted:
        return np.empty((0, *shape))
    model = membership.network(attacked, last.sent["model"])
    return inversion.of_features(model, np.stack(wanted), shape, direction=attacked.method == "creff")


def _blocks(seen: ExchangeView, kind: str, view: str) -> Tree:
    return seen.updates[VICTIM][kind] if view == "update" else seen.mean(kind)


def _part(attacked: AttackedJob, part: str, folder: Path) -> Images:
    return load(attacked.dataset, str(folder), part, 0, attacked.candidates)


def _best_figure(runs: list[np.ndarray]) -> float | None:
    """Median over the runs of the best-recovered original's dB; None where nothing was made of any."""
    best = [float(values.max()) for values in runs if np.isfinite(values).any()]
    return float(np.median(best)) if best else None
