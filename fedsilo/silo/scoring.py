"""What a silo says of a model that it scores by the job's metrics on its validation examples."""

from __future__ import annotations

import numpy as np
from torch import nn

from fedsilo.learning.evaluation import evaluate
from fedsilo.learning.examples import Examples
from fedsilo.learning.metrics.catalogue import ChosenMetrics
from fedsilo.learning.metrics.scores import Scores
from fedsilo.methods.interface import CONFUSION, Reply
from fedsilo.silo.context import LocalContext


def scored(context: LocalContext, model: nn.Module, chosen: ChosenMetrics) -> Reply:
    """Scores of the model, and the rows of its confusion matrix where the job counts answers.

    Then the classes of which there are too few validation examples are left out of every score: beside a sum over all
    examples, the rows would tell how many of them there are.
    """
    classes, examples, counts = context.signature.classes, context.validation, np.empty(0, np.int64)
    if chosen.confusion:
        counts = examples.labels.bincount(minlength=classes).cpu().numpy()
        examples = _of_classes(examples, counts >= context.min_samples_per_class)
    if len(examples) == 0:
        return Reply()
    scores = Scores(chosen, classes)
    found = evaluate(model, examples, scores=scores)
    metrics = {"accuracy": found.accuracy, "loss": found.loss, **scores.uncounted().metrics}
    large = np.flatnonzero((counts > 0) & (counts >= context.min_samples_per_class)).tolist()
    return Reply(
        {f"{CONFUSION}/{label}": scores.confusion()[label] for label in large},
        len(examples),
        metrics,
        {f"{CONFUSION}/{label}": int(counts[label]) for label in large},
    )


def _of_classes(examples: Examples, wanted: np.ndarray) -> Examples:
    """The examples of some classes.

    :param wanted: (classes,), whether a class is one of them.
    """
    return examples.take(np.flatnonzero(wanted[examples.labels.cpu().numpy()]))
