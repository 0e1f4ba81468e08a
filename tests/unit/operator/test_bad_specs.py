"""Each bad job and bad Silo is told to whom it belongs, by field, value and remedy, before anything is made for it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from fedsilo.api.agent import SiloAgent
from fedsilo.api.job import FederatedJob
from fedsilo.api.observed import Object
from fedsilo.api.proposal import propose
from fedsilo.api.silo import Silo
from fedsilo.errors import ManifestInvalid, MethodError
from fedsilo.learning.built import built_here
from fedsilo.silo.objections import objections
from fedsilo.validation import validate
from fedsilo_operator.objects import CLAIM, JOB, SERVICE, SILO_AGENT
from tests.unit.bad_specs import JOB_SPEC, JOBS, SILO_SPEC, SILOS, BadSpec, Finder, laid_over
from tests.unit.operator.job.harness import JobHarness
from tests.unit.operator.job.objects import NORTH, SETTINGS, manifest, silo

BEFORE_ANYTHING = (Finder.API_SERVER, Finder.OPERATOR)


def of(table: dict[str, BadSpec], *finders: Finder) -> Any:
    """The cases that these find, each under its name."""
    return [pytest.param(bad, id=name) for name, bad in table.items() if bad.finder in finders]


def job_of(bad: BadSpec) -> Object:
    return manifest(**laid_over(JOB_SPEC, bad.part))


def silo_of(spec: dict[str, Any]) -> Object:
    metadata = {"name": NORTH.name, "namespace": NORTH.namespace}
    return {"apiVersion": "fedsilo.io/v1alpha1", "kind": "Silo", "metadata": metadata, "spec": spec}


def test_there_are_as_many_as_were_promised() -> None:
    assert (len(JOBS), len(SILOS)) >= (60, 30)


@pytest.mark.parametrize("bad", of(JOBS, *BEFORE_ANYTHING))
def test_a_bad_job_is_over_before_anything_is_made(bad: BadSpec) -> None:
    harness = JobHarness(job_of(bad), [silo(NORTH)])
    harness.settle()

    status, reason, message = harness.condition("Failed") or ("", "", "")
    assert (status, reason) == ("True", bad.reason), message
    assert any(bad.field in line and bad.remedy in line for line in message.splitlines()), message
    assert not [made for kind in (SERVICE, CLAIM, JOB, SILO_AGENT) for made in harness.cluster.objects(kind)]


@pytest.mark.parametrize("bad", of(JOBS, *BEFORE_ANYTHING))
def test_validation_says_the_same_of_a_bad_job(bad: BadSpec) -> None:
    faults = validate([silo_of(SILO_SPEC), job_of(bad)])
    assert any(fault.path.startswith(bad.field) and bad.remedy in fault.line() for fault in faults), faults


@pytest.mark.parametrize("bad", of(SILOS, *BEFORE_ANYTHING))
def test_validation_says_what_is_wrong_with_a_bad_silo(bad: BadSpec) -> None:
    faults = validate([silo_of(laid_over(SILO_SPEC, bad.part)), manifest(**JOB_SPEC)])
    assert any(fault.path == bad.field and bad.remedy in fault.line() for fault in faults), faults


@pytest.mark.parametrize("bad", of(JOBS, Finder.SILO))
def test_a_silo_names_the_field_of_the_job(bad: BadSpec) -> None:
    strict = Silo.model_validate(silo_of(laid_over(SILO_SPEC, {"policy": {"payloadKinds": ["model"]}})))
    harness = JobHarness(job_of(bad), [silo(NORTH)])
    harness.settle()
    agent = SiloAgent.model_validate(harness.agent(NORTH))
    proposal = propose(agent.spec, SETTINGS.trainer_image, SETTINGS.guard_image)

    found = objections(agent, strict, proposal, datetime(2026, 3, 1, tzinfo=UTC), False)

    assert any(bad.field in one.message and bad.remedy in one.message for one in found), found


@pytest.mark.parametrize("bad", of(JOBS, Finder.NETWORK))
def test_the_aggregator_finds_a_network_that_does_not_fit(bad: BadSpec) -> None:
    job = FederatedJob.model_validate(job_of(bad))
    with pytest.raises((ManifestInvalid, MethodError)) as caught:
        built_here(job.spec)
    assert bad.remedy in str(caught.value)
