"""What a job's `spec.privacy.differentialPrivacy` comes to: mechanisms, noise, epsilon, and what it cannot cover.

That of single examples and persons, which a silo's trainer sees to.

Every silo has the noise with which all that it may send in the whole job, in every round and phase, is of the job's
epsilon: equal noise multipliers in all mechanisms, composed by `fedsilo.privacy.accounting`. That depends on the number
of its records, by which it samples: examples, or persons where the job protects those.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from fedsilo.errors import DataInvalid
from fedsilo.methods.method import Method
from fedsilo.methods.step import Step
from fedsilo.methods.traits import MechanismName
from fedsilo.privacy.accounting import noise_multiplier_for
from fedsilo.privacy.mechanism import MAX_TIMES, Mechanism

FIELD = "spec.privacy.differentialPrivacy"


def round_mechanisms(
    method: Method, step: str, records: int, noise_multiplier: float = 1.0
) -> dict[MechanismName, Mechanism]:
    """What each record of a silo with so many goes through in one round of a step.

    A silo half takes from here how many private steps it takes, of which batches and with how much noise, so that
    whatever is charged and whatever is done are one plan.
    """
    names = {
        method.training.mechanisms.get(payload.kind) for payload in method.steps().get(step, Step()).payloads
    }
    found: dict[MechanismName, Mechanism] = {}
    if "DP-SGD" in names:
        steps = method.training.local_steps(method.spec, step)
        found["DP-SGD"] = Mechanism(noise_multiplier, steps.batch_size / records, steps.number(records))
    if "Gaussian" in names:
        found["Gaussian"] = Mechanism(noise_multiplier)
    return found


def job_mechanisms(method: Method, records: int, noise_multiplier: float = 1.0) -> tuple[Mechanism, ...]:
    """What each record of a silo with so many goes through in the whole job, if the silo takes part in every round."""
    return tuple(
        replace(mechanism, times=phase.rounds * mechanism.times)
        for phase in method.phases()
        if phase.rounds
        for mechanism in round_mechanisms(method, phase.step, records, noise_multiplier).values()
    )


def planned_mechanisms(method: Method, step: str, records: int) -> tuple[Mechanism, ...]:
    """What the trainer of a silo with so many records has each of them go through in one round of a step.

    An empty tuple where the trainer adds no noise; errors as `noise_multiplier`.
    """
    private = method.spec.privacy.differential_privacy
    if private is None or not private.noised_by_trainer:
        return ()
    if not round_mechanisms(method, step, max(records, 1)):
        return ()
    return tuple(round_mechanisms(method, step, records, noise_multiplier(method, records)).values())


def noise_multiplier(method: Method, records: int) -> float:
    """Deviation of the noise over what one record can add, in a silo with so many.

    :raises DataInvalid: fewer records than a batch, or so many that the job's delta would permit to reveal one of them
        whole; or more steps than are counted.
    """
    private, batch = method.spec.privacy.differential_privacy, method.spec.training.examples_per_step
    assert private is not None, "asked for only where the job has it"
    units = f"{private.unit}s"
    if records < batch:
        raise DataInvalid(
            f"training: {units}: {records} are fewer than a batch of {batch}, of which differential privacy samples "
            f"each with the probability batch over {units}; use smaller batches, or give this silo more data"
        )
    if private.delta * records >= 1:
        raise DataInvalid(
            f"{FIELD}.delta: {private.delta:g} is not below one over the {records} {units} of this silo, so that one "
            f"of them might be revealed whole; use less than {1 / records:.2g}"
        )
    parts = tuple((each.sampling, each.times) for each in job_mechanisms(method, records))
    if (steps := sum(times for _, times in parts)) > MAX_TIMES:
        raise DataInvalid(
            f"training: {steps} steps of this silo with {records} {units} in the whole job are more than the "
            f"{MAX_TIMES} that are counted; use larger batches, fewer rounds, or localSteps"
        )
    if private.noise_multiplier is not None:
        return private.noise_multiplier
    assert private.epsilon is not None, "one of the two is there"
    return _noise_multiplier(private.epsilon, private.delta, parts)


@cache
def _noise_multiplier(epsilon: float, delta: float, parts: tuple[tuple[float, int], ...]) -> float:
    try:
        return noise_multiplier_for(epsilon, delta, parts)
    except ValueError as error:
        raise DataInvalid(
            f"{FIELD}.epsilon: {error}; use a larger epsilon, fewer rounds or more data"
        ) from error


def uncovered_payloads(method: Method) -> list[str]:
    """What silos send in the method that has no mechanism: payload kinds, and metrics that the aggregator needs."""
    covered: dict[str, MechanismName] = dict(method.training.mechanisms)
    steps = method.steps().values()
    kinds = {payload.kind for step in steps for payload in step.payloads} - covered.keys()
    metrics = {metric for step in steps for metric in step.required_metrics}
    return [*sorted(kinds), *sorted(metrics)]
