"""A silo's policy: the controller, which knows declarations, and the guard, which knows contracts, hear the same."""

from __future__ import annotations

from typing import Any

import pytest

from fedsilo.api.agent import FrozenJob
from fedsilo.api.digest import spec_digest
from fedsilo.api.job import FederatedJobSpec
from fedsilo.api.silo import Silo
from fedsilo.errors import MethodError
from fedsilo.methods import registry
from fedsilo.silo import policy
from fedsilo.silo.policy import Departure, declared, objections
from fedsilo.wire import ModelSignature, TensorSpec
from tests.federate import job_spec
from tests.unit.methods.forms import FORMS, form_spec

SIGNATURE = ModelSignature(
    (TensorSpec("encoder.weight", (5, 6), "float32"), TensorSpec("classifier.weight", (4, 5), "float32")),
    classes=4,
    feature=5,
)


def frozen(spec: FederatedJobSpec) -> FrozenJob:
    return FrozenJob(namespace="federation", name="digits", uid="1", spec_digest=spec_digest(spec), spec=spec)


def silo(**rules: Any) -> Silo:
    content = {"datasets": [{"name": "digits", "loader": "sklearn:digits"}], "policy": rules}
    return Silo.model_validate({"metadata": {"name": "north", "namespace": "silo-north"}, "spec": content})


@pytest.mark.parametrize("form", FORMS)
def test_what_is_declared_is_what_the_contracts_hold_and_never_more_bytes(form: str) -> None:
    spec = form_spec(form, ["north", "south"])
    method = registry.bind(spec)
    contracts = [method.contract(step, SIGNATURE, {}) for step in method.steps()]
    found = declared(spec)
    assert found is not None
    assert set(found.kinds) == {kind for contract in contracts for kind in contract.kinds()}
    assert found.size <= max(contract.max_bytes() for contract in contracts)


def test_what_does_not_depend_on_the_model_is_known_to_the_byte() -> None:
    spec = job_spec("fedconcat", ["north"], 3, method={"config": FORMS["fedconcat"][1]})
    found = declared(spec)
    assert found is not None
    # A 64-bit count of each class, in stage 1; of the large classifier the bias is known, which is less.
    assert found.size == 8 * spec.data.classes


def test_a_method_that_nobody_installed_declares_nothing() -> None:
    spec = job_spec("fedavg", ["north"], 3).model_copy(deep=True)
    unknown = spec.model_copy(update={"method": spec.method.model_copy(update={"name": "mystery"})})
    assert declared(unknown) is None
    assert objections(silo(), frozen(unknown), None) == []


def test_a_declaration_that_fails_is_its_authors_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def steps(*_: object) -> None:
        raise KeyError("train")

    monkeypatch.setattr(registry.get("fedavg"), "steps", steps)
    with pytest.raises(MethodError, match="declaration of method fedavg failed: KeyError: 'train'"):
        declared(job_spec("fedavg", ["north"], 3))


def test_controller_and_guard_say_the_same() -> None:
    job = frozen(job_spec("fedavg", ["north"], 3))
    rules = silo(methods=["creff"], payloadKinds=["class_counts"], jobNamespaces=["b"], maxRounds=2)
    contract = registry.bind(job.spec).contract("train", SIGNATURE, {})
    asked = objections(rules, job, declared(job.spec))
    assert len(asked) == 4
    assert objections(rules, job, Departure.of(contract)) == asked


def test_the_guard_knows_the_bytes() -> None:
    job = frozen(job_spec("fedavg", ["north"], 3))
    rules = silo(maxBytesPerRound="239")
    assert objections(rules, job, declared(job.spec)) == []
    assert objections(rules, job, Departure(["model"], 240)) == [
        "policy.maxBytesPerRound is 239, an update may have 240 bytes; use a smaller model or fewer classes, or ask "
        "the institution for more"
    ]
    assert objections(rules, job, Departure(["model"], 239)) == []


def test_the_stricter_minimum_holds() -> None:
    spec = job_spec("fedavg", ["north"], 3, privacy={"minSamplesPerClass": 7})
    assert policy.min_samples_per_class(spec, silo(minSamplesPerClass=5)) == 7
    assert policy.min_samples_per_class(spec, silo(minSamplesPerClass=9)) == 9
