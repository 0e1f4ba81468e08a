"""How far a silo's local steps have led, as far as the aggregator can tell."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial

from fedsilo.api.training import TrainingSpec
from fedsilo.methods.interface import Exchange, ServerContext
from fedsilo.methods.reading import Updates
from fedsilo.methods.step import LOSS, Metric, Payload, Step
from fedsilo.wire.combine import BlockMean, Quotient

STEPS = "steps"
"""The metric of local steps tau_k, by which methods divide."""


def stepping(training: TrainingSpec, over: Quotient) -> Step:
    """The step of methods in which a silo sends its model and tau_k, by which its model is divided in a sum."""
    payload = Payload("model", combine=BlockMean(over))
    return Step((payload,), (LOSS, Metric(STEPS, required=True)), partial(limits_of_steps, training))


def limits_of_steps(
    training: TrainingSpec, samples: int, metrics: Mapping[str, float]
) -> dict[str, tuple[float, float]]:
    """Range of the local steps tau_k that a silo may report, from 1 to what the plan says.

    A silo reports 1 where gradients in float16 overflow in all other steps.
    """
    return {STEPS: (1.0, float(planned_steps(training, samples)))}


def planned_steps(training: TrainingSpec, samples: int) -> int:
    """Steps of a round in a silo that states so many samples; none takes more."""
    if training.local_steps is not None:
        return training.local_steps
    return max(training.local_epochs * math.ceil(samples / training.examples_per_step), training.min_steps)


def steps_of(updates: Updates, silo: str) -> float:
    """Local steps tau_k that a silo's update states; it was refused on arrival if it states none."""
    return updates.metrics(silo)[STEPS]


def rate_of(job: ServerContext, exchange: Exchange) -> float:
    """Learning rate eta of the silos in this round."""
    from fedsilo.learning.training import learning_rate

    return learning_rate(job.spec.training, exchange.phase_round, exchange.phase_rounds)
