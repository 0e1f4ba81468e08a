"""What a job asks for beside a transform of another package that such a transform is not made for."""

from __future__ import annotations

from collections.abc import Iterator

from fedsilo.api.faults import Finding
from fedsilo.api.job import FederatedJobSpec
from fedsilo.transforms.third_party.interface import UpdateTransform
from fedsilo.transforms.third_party.registry import FIELD

PRIVACY, RULE = "spec.privacy.differentialPrivacy", "spec.aggregation.rule"


def check_transform(spec: FederatedJobSpec, place: int, transform: UpdateTransform) -> Iterator[Finding]:
    """What does not go with the transform at one place of the list."""
    where, private = f"{FIELD}[{place}]", spec.privacy.differential_privacy

    def conflict_finding(problem: str, field: str, may: bool = False) -> Finding:
        by_author = "; its author may list that in goes_with" if may else ""
        return where, transform.name, problem, f"remove it, or remove {field}{by_author}"

    if spec.aggregation.secure:
        problem = "has other tensors sent than a model's, and secure aggregation adds models up as they are"
        yield conflict_finding(problem, "spec.aggregation.secure")
    if spec.upload.is_encoded:
        problem = "has other tensors sent than a model's, and there is one way to write these in fewer bytes"
        yield conflict_finding(problem, "spec.communication.upload")
    if private is not None and private.unit == "silo":
        problem = (
            "has other tensors sent than a model's, to which the guard cannot add noise, as unit silo needs"
        )
        yield conflict_finding(problem, PRIVACY)
    elif private is not None and PRIVACY not in transform.goes_with:
        problem = (
            "comes after the noise of differential privacy, and does not say that it adds nothing of the data"
        )
        yield conflict_finding(problem, PRIVACY, may=True)
    if spec.aggregation.rule is not None and RULE not in transform.goes_with:
        problem = "does not say that models of single silos come of what it has sent, which a rule compares"
        yield conflict_finding(problem, RULE, may=True)
