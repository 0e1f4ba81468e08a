"""What a silo says of a model that it scores by the job's metrics on its validation examples."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import nn

from fedsilo.learning.evaluation import Evaluation, evaluate
from fedsilo.learning.examples import Examples
from fedsilo.learning.metrics.batches import no_sums
from fedsilo.learning.metrics.chosen import LOG_LIKELIHOOD, TOKENS, ChosenMetrics
from fedsilo.learning.metrics.scores import Scores
from fedsilo.methods.interface import Reply, SiloContext
from fedsilo.methods.step import CONFUSION
from fedsilo.tasks.interface import LearningTask
from fedsilo.tasks.places import UNSCORED_TARGET
from fedsilo.tasks.registry import metrics_of
from fedsilo.transforms.evaluation.sums import sums_blocks


def scored_reply(context: SiloContext, model: nn.Module, chosen: ChosenMetrics) -> Reply:
    """Scores of the model, and the sums that the job's metrics follow from.

    Where the job counts answers, classes of which there are too few validation examples are left out of every score:
    beside a sum over all examples, the rows would tell how many of them there are.
    """
    task, examples, support = context.learning_task, context.validation, np.empty(0, np.int64)
    least, per_feature = context.min_samples_per_class, context.min_samples_per_feature
    if chosen.counts and len(examples):
        support = class_support(examples.labels, task)
        examples = _without_small_classes(examples, support < least, task)
    rows = np.flatnonzero((support > 0) & (support >= least)).tolist()
    if len(examples) == 0:
        return unscored_reply(context, chosen)
    scores = Scores(chosen, task)
    found = evaluate(model, examples, scores=scores, task=task)
    means = declared_scores(context, found)
    summed = {} if scores.sums.tokens is None else _means(scores.sums.tokens, len(examples))
    return Reply(
        sums_blocks(chosen, scores.sums, rows, least, per_feature),
        len(examples),
        {**means, **summed, **scores.unsummed_metrics().metrics},
        {f"{CONFUSION}/{label}": int(support[label]) for label in rows},
    )


def declared_scores(context: SiloContext, found: Evaluation) -> dict[str, float]:
    """Main metric and loss, as far as the method declares them: of a job's own learning task the loss alone, since
    the guard does not import it.
    """
    return {name: found.sums[name] / found.samples for name in metrics_of(context.spec.task)}


def unscored_reply(context: SiloContext, chosen: ChosenMetrics) -> Reply:
    """What a silo says that has no example to score by: sums over none."""
    none = no_sums(chosen, context.learning_task.outputs)
    least, per_feature = context.min_samples_per_class, context.min_samples_per_feature
    return Reply(sums_blocks(chosen, none, (), least, per_feature))


def class_support(targets: torch.Tensor, task: LearningTask) -> np.ndarray:
    """Examples of each class, (classes,), int64: of pixels, images in which it occurs; of labels, the fewer of those
    that have it and those that have not, where that is any.
    """
    if task.answers == "labels":
        present = (targets == 1).sum(dim=0)
        fewer = torch.minimum(present, len(targets) - present).clamp(min=1)
        return np.asarray(fewer.cpu().numpy(), np.int64)
    if task.answers == "class":
        return np.asarray(targets.bincount(minlength=task.outputs).cpu().numpy(), np.int64)
    flat = targets.flatten(1)
    occurs = [(flat == label).any(dim=1).sum().item() for label in range(task.outputs)]
    return np.array(occurs, np.int64)


def _without_small_classes(examples: Examples, small: np.ndarray, task: LearningTask) -> Examples:
    """The examples without what is of small classes: none of them, or their other labels or pixels.

    :param small: (classes,), whether a class is one.
    """
    labels = examples.labels.clone()
    if task.answers == "class":
        return examples.take(np.flatnonzero(~small[labels.cpu().numpy()]))
    if not small.any():
        return examples
    classes = torch.from_numpy(np.flatnonzero(small)).to(labels.device)
    if task.answers == "labels":
        labels[:, classes] = UNSCORED_TARGET
    else:
        labels[torch.isin(labels, classes)] = UNSCORED_TARGET
    left = (labels != UNSCORED_TARGET).flatten(1).any(dim=1).cpu().numpy()
    return replace(examples, labels=labels).take(np.flatnonzero(left))


def _means(tokens: np.ndarray, samples: int) -> dict[str, float]:
    """Means by example of the sums of tokens: with their samples, the means of silos give the sums again."""
    number, log_likelihood = tokens.tolist()
    return {TOKENS: number / samples, LOG_LIKELIHOOD: log_likelihood / samples}
