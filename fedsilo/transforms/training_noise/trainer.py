"""Noise of training in the trainer: each tensor of a reply went through a mechanism, or is as it was handed out."""

from __future__ import annotations

from typing_extensions import override

from fedsilo.methods.interface import Reply
from fedsilo.transforms.training_noise.unprotected_tensors import require_private
from fedsilo.transforms.transform import TrainerSide, Work


class TrainingNoiseTrainerSide(TrainerSide):
    """The comparison of a reply with its task."""

    @override
    def pack(self, work: Work, reply: Reply) -> Reply:
        """Check the reply's tensors against the task, and return the reply unchanged.

        :raises MethodError: naming a tensor that is neither noised nor as it was handed out.
        """
        require_private(reply, work.task)
        return reply
