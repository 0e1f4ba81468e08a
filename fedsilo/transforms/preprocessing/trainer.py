"""Preprocessing in the trainer: the silo's statistics, and values that are prepared by the numbers of all silos."""

from __future__ import annotations

from dataclasses import replace

from typing_extensions import override

from fedsilo.methods.components.feature_statistics import feature_statistics
from fedsilo.methods.interface import PERSONAL_TREE, PREPROCESSING, Reply
from fedsilo.transforms.transform import TrainerSide, Work


class PreprocessingTrainerSide(TrainerSide):
    """Networks that take raw values, and statistics of them."""

    @override
    def answer(self, work: Work) -> Reply:
        """The statistics of the silo's training examples."""
        return feature_statistics(work.context, {})

    @override
    def unpack(self, work: Work) -> Work:
        """The context whose networks prepare values, once a task hands out the numbers."""
        if PREPROCESSING not in work.task.trees:
            return work
        context = replace(work.context, preprocessing=work.task.trees[PREPROCESSING])
        return replace(work, context=context)

    @override
    def pack(self, work: Work, reply: Reply) -> Reply:
        """The numbers beside the silo's own model, which takes raw values."""
        own, numbers = reply.private, work.context.preprocessing
        if own is None or PERSONAL_TREE not in own.trees or numbers is None:
            return reply
        return replace(reply, private=own.with_trees(**{PREPROCESSING: dict(numbers)}))
