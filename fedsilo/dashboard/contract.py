"""A job's contract as text: what it receives of each silo, from the method's declaration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from fedsilo.api.job import FederatedJobSpec
from fedsilo.errors import FedsiloError
from fedsilo.methods.interface import EVALUATE, PREPROCESSING, Phase
from fedsilo.methods.step import Payload, Step
from fedsilo.payload_kinds import count_samples, describe_kind
from fedsilo.transforms.plan import JobPlan
from fedsilo.transforms.third_party.registry import names


def contract(spec: Mapping[str, Any], parameters: int | None) -> dict[str, Any]:
    """What the job receives, as text; where the method or a transform is not installed, only why that is unknown.

    :param parameters: numbers in the job's model, once its aggregator has said so.
    """
    try:
        job = FederatedJobSpec.model_validate(spec)
        plan = JobPlan.of(job)
        method, phases = plan.method, plan.method.phases()
        steps = {name: step for name, step in plan.steps.items() if name != EVALUATE}
    except (FedsiloError, ValidationError):
        what = f"method {(spec.get('method') or {}).get('name', 'of this job')}"
        asked = [transform.get("name") for transform in spec.get("transforms") or ()]
        if absent := [name for name in asked if name not in names()]:
            what = f"transform {absent[0]}"
        return {"unknown": f"The {what} is not installed here, so what it receives cannot be told."}
    evaluation = plan.steps.get(EVALUATE, Step())
    declared = {**steps, EVALUATE: evaluation}
    received = {name: list(_payloads(step, job, parameters)) for name, step in declared.items()}
    rows = [
        {
            "phase": phase.name,
            "rounds": phase.rounds,
            "silos": "all silos" if phase.everyone or job.participation.fraction == 1 else "the silos drawn",
            "receives": received[phase.step],
            "figures": list(steps[phase.step].names),
        }
        for phase in [*_preparation(steps), *phases]
    ]
    models = method.models
    by_silos = models.personal is not None or (models.shared.is_model and job.evaluation.test_dataset is None)
    if by_silos:
        rows.append(
            {
                "phase": EVALUATE,
                "rounds": -(-sum(phase.rounds for phase in phases) // job.evaluation.every),
                "silos": "all silos",
                "receives": received[EVALUATE],
                "figures": list(evaluation.names),
            }
        )
    asked = [*(phase.step for phase in (*_preparation(steps), *phases)), EVALUATE]
    kinds = dict.fromkeys(text for step in asked for text in received[step])
    return {
        "title": method.title,
        "citation": method.citation,
        "sentence": f"This job receives{_sums(job)}: {'; '.join(kinds) or 'figures only'}.",
        "phases": rows,
        "notes": list(_notes([*declared.values()], job)),
    }


def _sums(job: FederatedJobSpec) -> str:
    return " sums over silos, and nothing of a single one" if job.aggregation.secure else ""


def _preparation(steps: Mapping[str, Step]) -> list[Phase]:
    """The phase of the job's own, before those of the method."""
    return [Phase(PREPROCESSING, 1, PREPROCESSING, everyone=True)] if PREPROCESSING in steps else []


def _payloads(step: Step, job: FederatedJobSpec, parameters: int | None) -> Iterator[str]:
    for kind in dict.fromkeys(payload.kind for payload in step.payloads):
        yield _payload_text(
            kind, [payload for payload in step.payloads if payload.kind == kind], job, parameters
        )


def _payload_text(
    kind: str, payloads: Sequence[Payload], job: FederatedJobSpec, parameters: int | None
) -> str:
    if any(payload.name is None for payload in payloads):
        return "models" if parameters is None else f"models of {parameters:,} parameters"
    names = " and ".join(str(payload.name) for payload in payloads)
    if kind == "model":
        return f"a part of the model ({names})"
    noun = describe_kind(kind).noun
    if any(payload.per_class for payload in payloads):
        return f"{noun} for {job.data.class_count} classes"
    return f"{noun} ({names})"


def _notes(steps: Sequence[Step], job: FederatedJobSpec) -> Iterator[str]:
    yield "Examples are not among what an update may hold; a silo's guard refuses whatever is not in this list."
    secure = bool(job.aggregation.secure)
    if secure:
        yield "The number of samples is in the sum as well: nobody is told how many a single silo has."
    else:
        yield "Every update states how many samples it was computed from."
    payloads = [payload for step in steps for payload in step.payloads]
    least = job.privacy.min_samples_per_class
    if any(payload.per_class for payload in payloads):
        yield f"Of a class with fewer than {least} samples in a silo nothing is sent; a silo may ask for more."
    if secure and any(payload.per_class for payload in payloads):
        yield "What is sent of a class is added; of a class that one silo alone has, the sum is its own."
    elif count_samples({payload.kind for payload in payloads}):
        yield "The consortium learns how many samples of each class a silo has."
    elif any(payload.per_class for payload in payloads):
        yield "The consortium learns which classes a silo has, not how many samples of each."
