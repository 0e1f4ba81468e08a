"""What a job with differential privacy of whole silos asks for that its noise does not cover."""

from __future__ import annotations

from collections.abc import Iterator

from fedsilo.api.faults import ABSENT_VALUE, Finding
from fedsilo.api.job import FederatedJobSpec
from fedsilo.methods.differential_privacy import FIELD
from fedsilo.methods.method import Method
from fedsilo.methods.reading import Mean, annotation_missing
from fedsilo.transforms.beside_noise import check_hidden

REMEDY = "use fedavg or a method like it, or another unit"


def check_silo_privacy(method: Method) -> Iterator[Finding]:
    """What a job with `unit: silo` asks for that its noise does not cover."""
    spec = method.spec
    private = spec.privacy.differential_privacy
    assert private is not None, "asked for only where the job has it"
    if why := uncovered_silo(method):
        given = private.model_dump(mode="json", by_alias=True, exclude_none=True)
        annotation = None if method.reads is Mean else annotation_missing(type(method).server, Mean)
        remedy = f"{annotation}; otherwise {REMEDY}" if annotation else REMEDY
        yield FIELD, given, f"does not cover method {method.name}, {why}", remedy
    yield from _check_sum(spec)
    silos = len(spec.silos.refs)
    if not silos:
        problem = "leaves open how many silos there are, among whom unit silo divides the noise"
        yield "spec.silos.selector", ABSENT_VALUE, problem, "name them in spec.silos.refs"
    elif private.delta * silos >= 1:
        problem = f"is not below one over the {silos} silos, so that one of them might be revealed whole"
        yield f"{FIELD}.delta", private.delta, problem, f"use less than {1 / silos:.2g}"
    if spec.training.trainer_metrics is not None:
        problem = "has no meaning with unit silo, where no figures of training leave a silo"
        yield "spec.training.trainerMetrics", list(spec.training.trainer_metrics), problem, "remove it"
    why = "whose statistics of batches are no weights that can be clipped and get noise"
    yield from check_hidden(method, why)


def uncovered_silo(method: Method) -> str | None:
    """Why the noise of updates does not cover the method, a clause after its name; None where it does."""
    if method.reads is not Mean:
        return "whose aggregate is not just one mean of the silos' models"
    if method.models.personal is not None:
        return "in which scores of silos' own models leave them too"
    if needed := sorted({metric for step in method.steps().values() for metric in step.required_metrics}):
        return f"which needs {', '.join(needed)} of every silo"
    return None


def _check_sum(spec: FederatedJobSpec) -> Iterator[Finding]:
    """That what is made of the updates is a sum in which all count alike, of what the guard has clipped."""
    aggregation = spec.aggregation
    if aggregation.weights != "uniform":
        problem = (
            "is not uniform, so that a silo of many examples would count for more than its clipped change"
        )
        yield "spec.aggregation.weights", aggregation.weights or ABSENT_VALUE, problem, "write uniform"
    if aggregation.rule is not None:
        problem = "looks at single silos' models, whose noise is only a part of what unit silo asks for"
        yield "spec.aggregation.rule.name", aggregation.rule.name, problem, "remove it"
    for name, encoding in (("upload", spec.upload), ("download", spec.download)):
        if encoding.is_encoded:
            problem = "has tensors sent as parts, to which the guard cannot add noise, as unit silo needs"
            given = encoding.model_dump(mode="json", by_alias=True, exclude_none=True)
            yield f"spec.communication.{name}", given, problem, "remove it"
