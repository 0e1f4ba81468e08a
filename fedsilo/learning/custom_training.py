"""A job's own training: `spec.training.trainer`, a Python function in place of the built-in loop.

It gets the model, the silo's examples and what the job says of the round, and gives back the model. What leaves the
silo, what it keeps, and what of both is refused stays as it is: the function decides nothing of that.

Its process is the trainer's, which must survive it. So the time is limited, what it prints goes to the log, a child
process that it leaves behind does not go on as a second trainer, and what it changed in PyTorch is set back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset
from typing_extensions import override

from fedsilo.api.python_import import error_summary, import_user_code, place_of
from fedsilo.errors import DataInvalid, MethodError, Problem, quoted_value
from fedsilo.learning import confinement
from fedsilo.learning.confinement import (
    LoggedLines,
    TimeLimitError,
    isolated_torch_state,
    limited_to,
    only_in_this_process,
)
from fedsilo.learning.constants import require_constants, without_constants
from fedsilo.learning.examples import Examples, batches
from fedsilo.learning.models import signature
from fedsilo.plain_numbers import plain_number
from fedsilo.wire.contract import METRIC_RANGE
from fedsilo.wire.tensors import TensorSpec

FIELD = "spec.training.trainer"

INTERNAL_FILES = (__file__, confinement.__file__)

log = logging.getLogger("fedsilo.trainer.own")


class ExampleSet(Dataset[tuple[Tensor, Tensor]]):
    """A silo's examples as a map-style dataset: for PyTorch's `DataLoader`, or with `batches` for a plain loop.

    :param examples: on the device that computes; items are given in host memory, batches where the examples are.
    """

    def __init__(self, examples: Examples) -> None:
        self._examples = examples

    def __len__(self) -> int:
        return len(self._examples)

    @override
    def __getitem__(self, place: int) -> tuple[Tensor, Tensor]:
        """Features in float32, and the target, of one example."""
        return self.__getitems__([place])[0]

    def __getitems__(self, places: Sequence[int]) -> list[tuple[Tensor, Tensor]]:
        """Features and targets of several examples, read at once; `DataLoader` prefers this."""
        index = torch.tensor(places, dtype=torch.int64, device=self._examples.labels.device)
        features, targets = self._examples.batch(index)
        return list(zip(features.cpu(), targets.cpu(), strict=True))

    def batches(self, size: int, seed: int | None = None) -> Iterator[tuple[Tensor, Tensor]]:
        """One pass over all examples, in batches on the device; in the given order, or in one drawn from a seed."""
        if len(self) == 0:
            return
        device = self._examples.labels.device
        order = batches(len(self), size, seed or 0, shuffle=seed is not None, device=device)
        one_pass = islice(order, -(-len(self) // size))
        with closing(self._examples.stream(one_pass)) as stream:
            for _, features, targets in stream:
                yield features, targets


@dataclass(frozen=True)
class TrainingData:
    """What the silo holds.

    :param train: to learn from.
    :param validation: held out from training; may be empty. The model that is scored on them is the common one.
    """

    train: ExampleSet
    validation: ExampleSet


@dataclass(frozen=True)
class TrainingBudget:
    """What the job says of a round; only `seconds` is enforced.

    :param epochs: `spec.training.localEpochs`; 1 where the job says steps.
    :param batch_size: examples of a step.
    :param learning_rate: of this round, with warm-up and schedule.
    :param seconds: after which the function is ended and the round fails in this silo.
    :param steps: `spec.training.localSteps`; None where the job says epochs.
    """

    epochs: int
    batch_size: int
    learning_rate: float
    seconds: float
    steps: int | None = None


@dataclass(frozen=True)
class TrainingContext:
    """Where and when a function trains.

    :param device: that the model is on.
    :param seed: of silo and round. PyTorch's, NumPy's and Python's generators are seeded with it already.
    :param round: number of the round, from 1.
    :param rounds: how many there are.
    :param state: arrays that the function gave back in the silo's last round; none in its first.
    :param rank: of this process among those of the silo, all of which call the function; what rank 0 gives back counts.
    :param world_size: how many there are; with several, PyTorch's default process group has been made.
    """

    device: torch.device
    seed: int
    round: int
    rounds: int
    budget: TrainingBudget
    state: Mapping[str, np.ndarray] = field(default_factory=dict)
    rank: int = 0
    world_size: int = 1


@dataclass(frozen=True)
class TrainingOutcome:
    """What a function gives back.

    :param model: with the job's tensors; the one that was given, or another of the same names and shapes.
    :param samples: examples that it was trained on, the weight of this silo's model; at most those of `data.train`.
    :param metrics: scalars: `loss`, which may be left out, and all that `spec.training.trainerMetrics` names.
    :param state: arrays for the silo's next round, kept in the silo as its private state.
    """

    model: nn.Module
    samples: int
    metrics: Mapping[str, float] = field(default_factory=dict)
    state: Mapping[str, np.ndarray] = field(default_factory=dict)


OwnTraining = Callable[[Any, TrainingData, TrainingContext], TrainingOutcome]


def import_trainer(name: str) -> OwnTraining:
    """The function that `spec.training.trainer` names.

    :raises ManifestInvalid: when it cannot be imported.
    :raises MethodError: when its module raises, or it is no function.
    """
    found = import_user_code(name, field=FIELD, remedy="install its package in the image of the trainer")
    if not callable(found):
        raise MethodError(f"{FIELD}: {name!r}: is a {type(found).__name__}; name a function")
    function: OwnTraining = found
    return function


def train_with(
    name: str,
    model: nn.Module,
    data: TrainingData,
    context: TrainingContext,
    metrics: Sequence[str],
    declared: Sequence[str] = (),
) -> TrainingOutcome:
    """Call the job's function, and check what it gives back before anything of it is written.

    :param metrics: scalars that the method's step declares, which it may leave out.
    :param declared: those of `spec.training.trainerMetrics`, which it may not.
    :raises ManifestInvalid: when the function cannot be imported.
    :raises MethodError: with one line for whatever is wrong with the function or its outcome.
    """
    if len(data.train) == 0:
        raise DataInvalid("training: examples: 0: not enough to train on; give this silo training data")
    function, expected = import_trainer(name), signature(model)
    subject = f"{FIELD}: {name!r}"
    model.train()
    lines = LoggedLines(log)
    outcome: Any
    with isolated_torch_state(context.seed, context.device), only_in_this_process(log, subject):
        try:
            with redirect_stdout(lines), redirect_stderr(lines), limited_to(context.budget.seconds, subject):
                outcome = function(model, data, context)
        except TimeLimitError:
            raise MethodError(
                f"{FIELD}: {name!r}: did not return within {context.budget.seconds:g} s, nine tenths of "
                "spec.participation.roundDeadline; raise the deadline, or let it do less"
            ) from None
        except DataInvalid:
            raise
        except (Exception, SystemExit) as failure:
            log.exception("%s: %r", FIELD, name)
            raise MethodError(
                f"{FIELD}: {name!r}: raises {error_summary(failure, saw_data=True)}"
                f"{place_of(failure, INTERNAL_FILES)}; correct the function"
            ) from failure
        finally:
            lines.close()
    try:
        return _checked_outcome(outcome, model, expected, len(data.train), metrics, declared)
    except ValueError as fault:
        raise MethodError(f"{FIELD}: {name!r}: {fault}") from None


def _checked_outcome(
    outcome: Any,
    model: nn.Module,
    expected: Any,
    examples: int,
    metrics: Sequence[str],
    declared: Sequence[str],
) -> TrainingOutcome:
    """The outcome with numbers of Python, if it is one.

    :param model: that the function was given.
    :param examples: how many the function was given.
    :raises MethodError: a constant of the model has changed.
    :raises ValueError: what is wrong, with the remedy.
    """
    if not isinstance(outcome, TrainingOutcome):
        raise ValueError(f"returns a {type(outcome).__name__}; return a fedsilo.TrainingOutcome")
    if not isinstance(outcome.model, nn.Module):
        raise ValueError(f"returns a {type(outcome.model).__name__} as model; return the trained Module")
    samples = plain_number(outcome.samples)
    if isinstance(samples, bool) or not isinstance(samples, int) or samples < 1:
        raise ValueError(
            f"returns samples {quoted_value(repr(samples))}; return the number of examples that it trained on"
        )
    if samples > examples:
        raise ValueError(
            f"returns samples {samples}, more than the {examples} examples that it was given; count each example "
            "once, in however many epochs it was used"
        )
    require_constants(model)
    require_constants(outcome.model)
    tensors = without_constants(model, outcome.model.state_dict())
    _check_tensors(tensors, {spec.name: spec for spec in expected.tensors})
    found = {name: plain_number(value) for name, value in outcome.metrics.items()}
    _check_metrics(found, metrics, declared)
    for key, array in outcome.state.items():
        if not isinstance(array, np.ndarray):
            raise ValueError(f"returns state {key!r}, a {type(array).__name__}; keep NumPy arrays")
        try:
            TensorSpec(key, array.shape, array.dtype.name)
        except Problem as problem:
            raise ValueError(f"returns state that cannot be kept: {problem.detail}") from None
    return replace(outcome, samples=samples, metrics=found)


def _check_metrics(found: Mapping[str, Any], metrics: Sequence[str], declared: Sequence[str]) -> None:
    for metric, value in found.items():
        if metric not in (*metrics, *declared):
            allowed = ", ".join(metrics) or "none"
            raise ValueError(
                f"returns metric {metric!r}, which the method does not declare; it declares {allowed}; name it in "
                "spec.training.trainerMetrics, or leave it out"
            )
        if not isinstance(value, int | float) or not np.isfinite(value):
            raise ValueError(
                f"returns metric {metric!r} of {quoted_value(repr(value))}; return a finite number"
            )
        low, high = METRIC_RANGE
        if not low <= value <= high:
            raise ValueError(
                f"returns metric {metric!r} of {quoted_value(repr(value))}; return a number from {low:g} to {high:g}"
            )
    for metric in declared:
        if metric not in found:
            raise ValueError(
                f"returns no metric {metric!r}, which spec.training.trainerMetrics declares; return it, or remove it "
                "there"
            )


def _check_tensors(found: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    for name in [*expected, *found]:
        if name not in found:
            raise ValueError(
                f"returns a model without tensor {name!r}; return the architecture that it was given"
            )
        if name not in expected:
            raise ValueError(
                f"returns a model with tensor {name!r}, which the job's has not; return the architecture that it was "
                "given, unwrapped"
            )
    for name, spec in expected.items():
        tensor = found[name]
        shape, dtype = tuple(tensor.shape), str(tensor.dtype).removeprefix("torch.")
        if (shape, dtype) != (spec.shape, spec.dtype):
            raise ValueError(
                f"returns tensor {name!r} of shape {list(shape)} and dtype {dtype}; keep {list(spec.shape)} and "
                f"{spec.dtype}"
            )
        if tensor.is_floating_point() and not tensor.isfinite().all():
            raise ValueError(
                f"returns tensor {name!r} with NaN or infinity; lower the learning rate or clip gradients"
            )
