"""Ensemble distillation at the aggregator: the average of the silos' models learns what many models answer.

The answers are those on the public dataset, and so is the learning; no example of a silo is needed for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np
import torch
from torch import Tensor, nn

from fedsilo.learning.distilling import Distillation, distil
from fedsilo.learning.evaluation import outputs_of
from fedsilo.learning.examples import Examples
from fedsilo.learning.models import load_tree, to_tree
from fedsilo.methods.interface import ServerContext
from fedsilo.methods.state import Tree

Teachers = Iterable[Mapping[str, np.ndarray]]
"""Models, each of which is there only while it answers."""


def distill_ensemble(
    job: ServerContext,
    average: Tree,
    teachers: Teachers,
    answer: Callable[[Tensor], Tensor],
    target: Callable[[Tensor], Tensor],
    plan: Callable[[int], Distillation],
) -> Tree:
    """The average after it has learned the teachers' mean answers on the public dataset.

    BatchNorm's statistics stay the averages, since those of public examples may be others.

    :param answer: what a teacher contributes, of its logits (n, C).
    :param target: what is learned, probabilities of the mean of these, (n, C).
    :param plan: the training, of the number of examples.
    """
    examples = job.public_examples()
    if not len(examples):
        return average
    module = job.module(average)
    targets = target(mean_answers(teachers, module, examples, answer))
    load_tree(module, average)
    distil(module, examples, targets, plan(len(examples)))
    return to_tree(module)


def mean_answers(
    teachers: Iterable[Mapping[str, np.ndarray]],
    module: nn.Module,
    examples: Examples,
    answer: Callable[[Tensor], Tensor],
) -> Tensor:
    """Mean over the teachers of what they answer, (n, C); one of them is in memory at a time.

    :param module: takes each teacher's weights in turn.
    :param answer: of logits (n, C).
    """
    total, count = torch.zeros(()), 0
    for count, tree in enumerate(teachers, 1):
        load_tree(module, tree)
        logits = answer(outputs_of(module, examples))
        total = logits if count == 1 else total + logits
    return total / count


def softmax(logits: Tensor) -> Tensor:
    """Softmax probabilities of logits, (n, C)."""
    return logits.softmax(dim=1)


def identity(answers: Tensor) -> Tensor:
    """The answers as they are."""
    return answers
