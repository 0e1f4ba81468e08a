"""A network is tried on blank examples before it is used: one that does not fit the job shows before round 1."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from fedsilo.api.python_import import error_summary
from fedsilo.errors import MethodError
from fedsilo.tasks.interface import LearningTask

SHOWN_NAMES = 5
"""Names of a dictionary's tensors that a message has; there may be many."""


@contextmanager
def in_mode(model: nn.Module, training: bool) -> Iterator[None]:
    """Put a model into a mode inside; afterwards each module is in the mode it had, frozen ones included."""
    modes = [(module, module.training) for module in model.modules()]
    model.train(training)
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


def initialise_lazy_layers(module: nn.Module, subject: str, task: LearningTask) -> None:
    """Call a network once if it has lazy layers, whose sizes follow from the first input.

    :raises MethodError: when it fails.
    """
    if any(map(is_lazy, (*module.parameters(), *module.buffers()))):
        blank_output(module, subject, task)


def try_network(
    module: nn.Module,
    subject: str,
    task: LearningTask,
    output: tuple[int, ...],
    meaning: str,
    *,
    examples: int = 1,
    training: bool = False,
) -> None:
    """Return if a network gives one tensor of numbers for each of so many blank examples.

    :param subject: what is tried, for messages.
    :param output: shape of what is wanted of one example.
    :param meaning: what that is, for messages.
    :raises MethodError: when it fails or gives anything else, which is named.
    """
    found = blank_output(module, subject, task, examples, training)
    wanted, subject = [examples, *output], _subject_text(subject, training)
    if not isinstance(found, Tensor):
        raise MethodError(
            f"{subject}: gives {_kind_text(found)}; return a tensor of shape {wanted}, {meaning}"
        )
    if list(found.shape) != wanted:
        raise MethodError(f"{subject}: output of shape {list(found.shape)}: make it {wanted}, {meaning}")
    if not found.is_floating_point():
        dtype = str(found.dtype).removeprefix("torch.")
        raise MethodError(
            f"{subject}: gives numbers of {dtype}; return a floating-point tensor of shape {wanted}, {meaning}"
        )


def blank_output(
    module: nn.Module, subject: str, task: LearningTask, examples: int = 1, training: bool = False
) -> object:
    """What a network gives for zeros.

    :raises MethodError: when it fails.
    """
    shape = (examples, *task.data.input_shape)
    dtype = torch.float32 if task.vocabulary is None else torch.int64
    try:
        with in_mode(module, training), torch.no_grad():
            found: object = module(torch.zeros(shape, dtype=dtype))
    except (Exception, SystemExit) as failure:
        raise MethodError(
            f"{_subject_text(subject, training)}: fails on an input of shape {list(shape)}: {error_summary(failure)}; "
            "fit the network to spec.data.inputShape"
        ) from failure
    return found


def _subject_text(subject: str, training: bool) -> str:
    return f"{subject}: in training mode" if training else subject


def _kind_text(found: object) -> str:
    """What is no tensor, by its type and what it holds."""
    if found is None:
        return "None"
    names: list[str] = []
    if isinstance(found, Mapping):
        names = [repr(name) for name in found]
    elif is_dataclass(found) and not isinstance(found, type):
        names = [repr(field.name) for field in fields(found)]
    kind = f"a {type(found).__name__}"
    if names:
        return f"{kind} with {', '.join([*names[:SHOWN_NAMES], *(['...'] if names[SHOWN_NAMES:] else [])])}"
    return f"{kind} of {len(found)}" if isinstance(found, tuple | list) else kind
