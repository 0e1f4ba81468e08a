"""What the privacy of single examples costs: by a backward pass for each batch, and by one for each example."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from benchmarks.gpu.cases import Case, Figures, Setting
from benchmarks.gpu.clock import now
from benchmarks.training import cross_entropy, job_of, silo_of, task_of
from fedsilo.learning.models import build_module, initial_model, load_tree
from fedsilo.learning.opacus_hooks import Part
from fedsilo.learning.private_training import ExamplePrivacy, fit_privately
from fedsilo.learning.single_gradients import ONE_BY_ONE, TRIED_EXAMPLES, SingleGradients
from fedsilo.learning.training import LocalTraining, fit
from fedsilo.privacy.mechanism import Mechanism
from fedsilo.silo.context import LocalContext, open_context

BATCH_EXAMPLES = 64
NOISE = 1.0
NORM = 1.0
TRAININGS = 2
"""The first one warms up."""


def cases(setting: Setting) -> Iterator[Case]:
    """One case per network: a training step with differential privacy."""
    for network in ("lenet",) if setting.size == "reduced" else ("lenet", "transformer"):
        yield Case(network, partial(step_time_figures, setting, network))


def step_time_figures(setting: Setting, network: str) -> Figures:
    """Milliseconds of a step without privacy, and with it in both ways."""
    steps, batch = int(setting.of(10, 5, 2)), int(setting.of(BATCH_EXAMPLES, BATCH_EXAMPLES, 4))
    spec = job_of(network, setting.device, "float32", batch)
    context = open_context(spec, silo_of(network, steps * batch), Path.cwd())
    open_ = training_seconds(context, setting, lambda model, plan: fit(model, context.train, plan, loss=loss))
    with counting_single_passes() as single:
        together = training_seconds(
            context, setting, lambda model, plan: privately(context, model, plan, steps)
        )
    with one_pass_each():
        alone = training_seconds(context, setting, lambda model, plan: privately(context, model, plan, steps))
    figures = {"not private": open_, "a pass for a batch": together, "a pass for each example": alone}
    milliseconds = {f"{name}, ms/step": 1000 * seconds / steps for name, seconds in figures.items()}
    return {
        "steps": steps,
        **milliseconds,
        "a pass for a batch over not private": together / open_,
        "passes for single examples in the former": len(single) - TRAININGS * TRIED_EXAMPLES,
    }


def loss(model: torch.nn.Module, features: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Mean over the examples."""
    return cross_entropy(model(features), labels)


def training_seconds(
    context: LocalContext, setting: Setting, train: Callable[[torch.nn.Module, LocalTraining], object]
) -> float:
    """Seconds of one training, after one that warms up."""
    tree, spec = initial_model(context.spec), context.spec
    plan = context.local_training(task_of(tree))
    seconds = 0.0
    for _ in range(TRAININGS):
        model = build_module(spec.model, spec.data, 0, spec.task)
        load_tree(model, tree)
        model.to(context.train.labels.device)
        began = now(setting.device)
        train(model, replace(plan, kept=None))
        seconds = now(setting.device) - began
    return seconds


def privately(context: LocalContext, model: torch.nn.Module, plan: LocalTraining, steps: int) -> None:
    """One epoch of private steps."""
    mechanism = Mechanism(NOISE, plan.batch_size / len(context.train), steps)
    privacy = ExamplePrivacy(mechanism, NORM, np.random.default_rng(0))
    fit_privately(model, context.train, plan, privacy, loss)


@contextmanager
def counting_single_passes() -> Iterator[list[int]]:
    """Inside, every backward pass of a single example is listed: where nothing else applies, each example gets one."""
    known, passes = SingleGradients._single_gradient, list[int]()

    def count_pass(self: SingleGradients, features: Tensor, labels: Tensor, place: int) -> Part:
        passes.append(place)
        return known(self, features, labels, place)

    SingleGradients._single_gradient = count_pass  # type: ignore[method-assign]
    try:
        yield passes
    finally:
        SingleGradients._single_gradient = known  # type: ignore[method-assign]


@contextmanager
def one_pass_each() -> Iterator[None]:
    """Inside, no network is found to have gradients of a batch, layer by layer or by Opacus."""
    known = SingleGradients._choose
    SingleGradients._choose = lambda *_: ONE_BY_ONE  # type: ignore[method-assign]
    try:
        yield
    finally:
        SingleGradients._choose = known  # type: ignore[method-assign]
