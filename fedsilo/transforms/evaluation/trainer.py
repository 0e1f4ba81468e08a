"""Scores in the trainer: of the task's model and of the silo's own, on its validation examples."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from typing_extensions import override

from fedsilo.learning.evaluation import evaluate
from fedsilo.learning.metrics.chosen import ChosenMetrics
from fedsilo.learning.metrics.scores import require_metrics
from fedsilo.methods.interface import PERSONAL_TREE, Reply
from fedsilo.methods.method import Method
from fedsilo.methods.state import State
from fedsilo.methods.step import PERSONAL_ACCURACY
from fedsilo.transforms.evaluation.scores import declared_scores, scored_reply, unscored_reply
from fedsilo.transforms.transform import TrainerSide, Work


class EvaluationTrainerSide(TrainerSide):
    """The evaluation's own exchanges.

    :raises ManifestInvalid: when what computes the job's metrics is not installed.
    """

    def __init__(self, method: Method) -> None:
        self._method = method
        self._chosen = ChosenMetrics.of_job(method.spec)
        if method.spec.evaluation.test_dataset is None:
            require_metrics(self._chosen)

    @override
    def answer(self, work: Work) -> Reply:
        """Scores of the models that there are."""
        context, trees = work.context, work.task.trees
        metrics: dict[str, float] = {}
        if len(context.validation) == 0:
            return unscored_reply(context, self._chosen) if "model" in trees else Reply()
        if "model" in trees:
            architecture = self._method.models.shared_architecture(self._method.spec, work.task.settings)
            module = context.module(trees["model"], architecture)
            if self._chosen.any:
                reply = scored_reply(context, module, self._chosen)
                return replace(
                    reply, metrics={**reply.metrics, **self._personal_score(context, work.private)}
                )
            metrics = declared_scores(
                context, evaluate(module, context.validation, task=context.learning_task)
            )
        own = self._personal_score(context, work.private)
        return Reply(samples=len(context.validation), metrics={**metrics, **own})

    def _personal_score(self, context: Any, private: State) -> dict[str, float]:
        """The score of the silo's own model, where it has one."""
        if self._method.models.personal is None or PERSONAL_TREE not in private.trees:
            return {}
        model = context.module(
            private.tree(PERSONAL_TREE), self._method.models.own_architecture(self._method.spec)
        )
        return {PERSONAL_ACCURACY: evaluate(model, context.validation).accuracy}
