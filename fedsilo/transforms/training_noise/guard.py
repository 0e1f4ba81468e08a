"""Noise of training in the guard: the mechanisms that a reply must state, and what has none must be as it was."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from typing_extensions import override

from fedsilo.errors import FedsiloError, PolicyRefused
from fedsilo.methods.differential_privacy import planned_mechanisms
from fedsilo.methods.method import Method, declaring
from fedsilo.privacy.mechanism import Mechanism
from fedsilo.transforms.guard import GuardedReply, GuardSide
from fedsilo.transforms.training_noise.unprotected_tensors import exact_tensors, require_handed_out


class TrainingNoiseGuardSide(GuardSide):
    """The comparison of a reply with the job's plan, and with the model of its task."""

    def __init__(self, method: Method) -> None:
        self._method = method

    @override
    def required_mechanisms(self, step: str, samples: int) -> tuple[Mechanism, ...]:
        """Mechanisms of the job's plan for a step in a silo of so many samples."""
        try:
            with declaring(self._method):
                return planned_mechanisms(self._method, step, samples)
        except FedsiloError as error:
            raise PolicyRefused(f"reply: samples {samples}: {error}") from error

    @override
    def require(self, reply: GuardedReply, tensor: Callable[[str], np.ndarray]) -> None:
        """Check that tensors without fractions, which get no noise, are as the task handed them out."""
        if exact := exact_tensors(reply.contract):
            with reply.model() as given:
                require_handed_out(exact, tensor, given)
