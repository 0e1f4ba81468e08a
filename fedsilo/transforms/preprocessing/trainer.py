"""Preprocessing in the trainer: the silo's statistics, and values that are prepared by the numbers of all silos."""

from __future__ import annotations

from dataclasses import replace

from typing_extensions import override

from fedsilo.learning.preprocessing import standardised_targets, without_targets
from fedsilo.learning.preprocessing_numbers import TARGET_MEAN
from fedsilo.methods.components.feature_statistics import feature_statistics, target_statistics
from fedsilo.methods.interface import EVALUATE, PERSONAL_TREE, PREPROCESSING, Reply
from fedsilo.transforms.transform import TrainerSide, Work


class PreprocessingTrainerSide(TrainerSide):
    """Networks that take raw values, and statistics of them."""

    @override
    def answer(self, work: Work) -> Reply:
        """The statistics of the silo's training examples, and of their targets where those are standardised."""
        reply = feature_statistics(work.context, {})
        if not work.context.learning_task.standardises_targets:
            return reply
        return replace(reply, tensors={**reply.tensors, **target_statistics(work.context)})

    @override
    def unpack(self, work: Work) -> Work:
        """The context whose networks prepare values, once a task hands out the numbers.

        Networks learn standardised targets. Where they are scored, targets are raw, and so is what networks give.
        """
        if PREPROCESSING not in work.task.trees:
            return work
        context, numbers = work.context, work.task.trees[PREPROCESSING]
        if work.task.step == EVALUATE or TARGET_MEAN not in numbers:
            return replace(work, context=replace(context, preprocessing=numbers))
        prepared = {
            name: replace(examples, labels=standardised_targets(examples.labels, numbers))
            for name, examples in (("train", context.train), ("validation", context.validation))
        }
        return replace(work, context=replace(context, preprocessing=without_targets(numbers), **prepared))

    @override
    def pack(self, work: Work, reply: Reply) -> Reply:
        """The numbers beside the silo's own model, which takes raw values."""
        own, numbers = reply.private, work.task.trees.get(PREPROCESSING)
        if own is None or PERSONAL_TREE not in own.trees or numbers is None:
            return reply
        return replace(reply, private=own.with_trees(**{PREPROCESSING: dict(numbers)}))
