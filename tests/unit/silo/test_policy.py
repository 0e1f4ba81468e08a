"""A silo's policy says the same to the controller, who knows declarations, and the guard, who knows contracts."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from fedsilo.api.agent import FrozenJob
from fedsilo.api.digest import spec_digest
from fedsilo.api.job import FederatedJobSpec, SilosSpec
from fedsilo.api.silo import Silo
from fedsilo.errors import MethodError
from fedsilo.methods import registry
from fedsilo.privacy.accounting import epsilon_of
from fedsilo.privacy.mechanism import Mechanism
from fedsilo.silo import policy, reply_limits
from fedsilo.silo.budget_figures import SpentBudget, reserved_epsilon
from fedsilo.silo.policy import EgressRequest, EgressTotals, declared_egress, objections
from fedsilo.silo.reply_limits import ReplyLimits
from fedsilo.transforms.plan import JobPlan
from fedsilo.wire import ModelSignature, TensorSpec
from tests.federate import job_spec
from tests.unit.methods.forms import FORMS, form_spec

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)

SIGNATURE = ModelSignature(
    (TensorSpec("encoder.weight", (5, 6), "float32"), TensorSpec("classifier.weight", (4, 5), "float32")),
    classes=4,
    feature=5,
)


def frozen_job(spec: FederatedJobSpec) -> FrozenJob:
    return FrozenJob(namespace="federation", name="digits", uid="1", spec_digest=spec_digest(spec), spec=spec)


def silo(**rules: Any) -> Silo:
    content = {"datasets": [{"name": "digits", "loader": "sklearn:digits"}], "policy": rules}
    return Silo.model_validate({"metadata": {"name": "north", "namespace": "silo-north"}, "spec": content})


@pytest.mark.parametrize("form", FORMS)
def test_what_is_declared_is_what_the_contracts_hold_and_never_more_bytes(form: str) -> None:
    spec = form_spec(form, ["north", "south"])
    method = registry.bind(spec)
    contracts = [JobPlan(method).contract(step, SIGNATURE, {}) for step in method.steps()]
    found = declared_egress(spec)
    assert found is not None
    assert set(found.kinds) == {kind for contract in contracts for kind in contract.kinds()}
    assert found.size <= max(contract.max_bytes() for contract in contracts)


def test_what_does_not_depend_on_the_model_is_known_to_the_byte() -> None:
    spec = job_spec("fedconcat", ["north"], 3, method={"config": FORMS["fedconcat"][1]})
    found = declared_egress(spec)
    assert found is not None
    # A 64-bit count of each class, in stage 1; of the large classifier the bias is known, which is less.
    assert found.size == 8 * spec.data.class_count


def test_a_method_that_nobody_installed_declares_nothing() -> None:
    spec = job_spec("fedavg", ["north"], 3).model_copy(deep=True)
    unknown = spec.model_copy(update={"method": spec.method.model_copy(update={"name": "mystery"})})
    assert declared_egress(unknown) is None
    assert objections(silo(), frozen_job(unknown), None, NOW) == []


def test_a_declaration_that_fails_is_its_authors_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def steps(*_: object) -> None:
        raise KeyError("train")

    monkeypatch.setattr(registry.get("fedavg"), "steps", steps)
    with pytest.raises(MethodError, match="declaration of method fedavg failed: KeyError: 'train'"):
        declared_egress(job_spec("fedavg", ["north"], 3))


def test_controller_and_guard_say_the_same() -> None:
    job = frozen_job(job_spec("fedavg", ["north"], 3))
    rules = silo(methods=["creff"], payloadKinds=["class_counts"], jobNamespaces=["b"], maxRounds=2)
    contract = JobPlan.of(job.spec).contract("train", SIGNATURE, {})
    asked = objections(rules, job, declared_egress(job.spec), NOW)
    assert len(asked) == 4
    assert objections(rules, job, EgressRequest.of(contract, 1, None), NOW) == asked


def test_the_guard_knows_the_bytes() -> None:
    job = frozen_job(job_spec("fedavg", ["north"], 3))
    rules = silo(maxBytesPerRound="239")
    assert objections(rules, job, declared_egress(job.spec), NOW) == []
    assert objections(rules, job, EgressRequest(["model"], 240), NOW) == [
        "policy.maxBytesPerRound is 239, an update may have 240 bytes; use a smaller model or fewer classes, or ask "
        "the institution for more"
    ]
    assert objections(rules, job, EgressRequest(["model"], 239), NOW) == []


def test_an_update_that_may_follow_from_a_handful_of_examples_is_refused_by_controller_and_guard() -> None:
    def training_objections(rules: Silo, **training: Any) -> list[str]:
        spec = job_spec("fedavg", ["north"], 3, training={"rounds": 3, **training})
        method, job = registry.bind(spec), frozen_job(spec)
        contract = JobPlan(method).contract("train", SIGNATURE, {})
        found = objections(rules, job, declared_egress(spec), NOW)
        assert (
            objections(
                rules,
                job,
                EgressRequest.of(contract, 1, method.training.min_examples_per_update(method.spec)),
                NOW,
            )
            == found
        )
        return found

    assert training_objections(silo(), localSteps=2, batchSize=2) == [
        "policy.minSamplesPerUpdate asks for 5, an update of method fedavg may follow from 4 examples; use larger "
        "batches, or localEpochs or more localSteps, or ask the institution for fewer"
    ]
    assert training_objections(silo(minSamplesPerUpdate=4), localSteps=2, batchSize=2) == []
    assert training_objections(silo(minSamplesPerClass=4), localSteps=2, batchSize=2) == []
    assert len(training_objections(silo(minSamplesPerUpdate=9), localSteps=2, batchSize=4)) == 1
    assert (
        training_objections(silo(minSamplesPerUpdate=8), localSteps=2, batchSize=2, gradientAccumulation=2)
        == []
    )
    assert training_objections(silo(), batchSize=1) == []  # passes over all that the silo has


def test_preprocessing_needs_a_permission_of_its_own() -> None:
    spec = job_spec("fedavg", ["north"], 3, data={"preprocessing": {"standardise": True}})
    assert (
        objections(
            silo(payloadKinds=["model", "feature_statistics"]), frozen_job(spec), declared_egress(spec), NOW
        )
        == []
    )
    contract = JobPlan.of(spec).contract("preprocessing", SIGNATURE, {})
    for departure in (declared_egress(spec), EgressRequest.of(contract, 1, None)):
        assert objections(silo(), frozen_job(spec), departure, NOW) == [
            "policy.payloadKinds does not allow feature_statistics, which spec.data.preprocessing needs; leave it out, "
            "or ask the institution to allow it"
        ]


@pytest.mark.parametrize(
    ("metrics", "kind", "said"),
    [
        (["f1"], "confusion", "f1 in spec.evaluation.metrics needs; leave out f1, or name a testDataset"),
        (
            ["recall", "confusion_matrix"],
            "confusion",
            "recall and confusion_matrix in spec.evaluation.metrics need; leave out recall and confusion_matrix, or "
            "name a testDataset",
        ),
    ],
)
def test_metrics_that_need_another_kind_are_named_and_not_the_method(
    metrics: list[str], kind: str, said: str
) -> None:
    spec = job_spec("fedavg", ["north"], 3, evaluation={"metrics": metrics})
    assert objections(silo(payloadKinds=["model"]), frozen_job(spec), declared_egress(spec), NOW) == [
        f"policy.payloadKinds does not allow {kind}, which {said} in spec.evaluation, or ask the institution to allow "
        "it"
    ]


def test_the_stricter_minimum_holds() -> None:
    spec = job_spec("fedavg", ["north"], 3, privacy={"minSamplesPerClass": 7})
    assert reply_limits.min_samples_per_class(spec, silo(minSamplesPerClass=5)) == 7
    assert reply_limits.min_samples_per_class(spec, silo(minSamplesPerClass=9)) == 9


def policy_objections(
    rules: Silo, departure: EgressRequest | None = None, sent: EgressTotals = policy.NO_EGRESS, **job: Any
) -> list[str]:
    """Objections to a job of three rounds with four silos."""
    spec = job_spec("fedavg", ["north", "south", "west", "east"], 3, **job)
    return objections(rules, frozen_job(spec), departure, NOW, sent)


@pytest.mark.parametrize(
    ("participation", "least"),
    [({}, 4), ({"minSilos": 2}, 2), ({"fraction": 0.5}, 2), ({"fraction": 0.75, "minSilos": 1}, 1)],
)
def test_every_round_needs_as_many_silos_as_the_policy_asks_for(
    participation: dict[str, Any], least: int
) -> None:
    assert policy_objections(silo(minSilos=least), participation=participation) == []
    assert policy_objections(silo(minSilos=least + 1), participation=participation) == [
        f"policy.minSilos is {least + 1}, a round of the job needs the answers of {least}; make "
        f"spec.participation.minSilos {least + 1} or more, with as many silos, or ask the institution to allow fewer"
    ]


def test_a_job_whose_silos_are_selected_needs_a_quorum_to_be_known() -> None:
    spec = job_spec("fedavg", ["north"], 3)
    selected = spec.model_copy(
        update={"silos": SilosSpec.model_validate({"selector": {"matchLabels": {"a": "b"}}})}
    )
    (text,) = objections(silo(minSilos=2), frozen_job(selected), None, NOW)
    assert "needs the answers of an unknown number" in text
    quorum = spec.participation.model_copy(update={"min_silos": 2})
    agreed = selected.model_copy(update={"participation": quorum})
    assert objections(silo(minSilos=2), frozen_job(agreed), None, NOW) == []


def test_dates_bound_when_a_job_is_admitted_and_anything_leaves() -> None:
    before, after = "2026-03-01T13:00:00+01:00", "2026-03-01T11:59:59.5Z"
    assert policy_objections(silo(notBefore=before)) == []
    assert policy_objections(silo(notBefore="2026-03-01T12:00:01Z")) == [
        "policy.notBefore is 2026-03-01T12:00:01Z; wait until then, or ask the institution for an earlier time"
    ]
    assert policy_objections(silo(notAfter=before)) == []
    assert policy_objections(silo(notAfter=after)) == [
        f"policy.notAfter is {after}, which is over; ask the institution for a later time"
    ]


def test_the_bytes_of_a_job_are_those_that_have_left_and_those_that_would() -> None:
    rules, sent = silo(maxBytesPerJob="1k"), EgressTotals(frozenset({1, 2}), 800)
    assert policy_objections(rules, EgressRequest(["model"], 200, 3), sent) == []
    assert policy_objections(rules, EgressRequest(["model"], 201, 3), sent) == [
        "policy.maxBytesPerJob is 1k, 800 bytes have left and an update may have 201 bytes; use a smaller model or "
        "fewer rounds, or ask the institution for more"
    ]
    assert policy_objections(rules, EgressRequest(["model"], 1001))[0].startswith(
        "policy.maxBytesPerJob is 1k, an update may have"
    )


def test_the_rounds_that_are_answered_are_counted_each_once() -> None:
    rules, sent = silo(maxAnsweredRounds=2), EgressTotals(frozenset({1, 3}), 0)
    assert policy_objections(rules, EgressRequest([], 0), sent) == [], (
        "a job may have more rounds than the silo answers in"
    )
    assert policy_objections(rules, EgressRequest([], 0, 3), sent) == [], (
        "its evaluation belongs to the round"
    )
    assert policy_objections(rules, EgressRequest([], 0, 4), sent) == [
        "policy.maxAnsweredRounds is 2, the silo has answered in 2 rounds of the job; end the job, or ask the "
        "institution for more"
    ]


def test_of_two_limits_the_stricter_holds() -> None:
    strict, loose = ReplyLimits(9, "Withheld"), ReplyLimits(5, "PerSilo")
    assert strict.and_those(loose) == loose.and_those(strict) == strict
    assert ReplyLimits(9, "PerSilo").and_those(ReplyLimits(5, "Mean")) == ReplyLimits(9, "Mean")


BUDGET = [{"dataset": "digits", "epsilon": 3.0, "delta": 1e-4}]


def about_the_budget(spent: SpentBudget | None = None, **private: Any) -> str:
    """What the policy says of a job with this differential privacy, or without any."""
    stated = {"unit": "example", "delta": 1e-4} | private if private else None
    spec = job_spec("fedavg", ["north"], privacy={"differentialPrivacy": stated}, data={"dataset": "digits"})
    where = silo(privacyBudget=BUDGET)
    if spent is not None:
        return policy.over_budget(where, frozen_job(spec), spent) or ""
    return " ".join(objections(where, frozen_job(spec), declared_egress(spec), NOW))


def test_a_budget_asks_for_a_stated_epsilon_that_it_has_room_for() -> None:
    permits = "policy.privacyBudget permits epsilon 3 at delta 0.0001 about digits"
    assert about_the_budget() == f"{permits}, and the job has no spec.privacy.differentialPrivacy; add it"
    assert "states noise in place of epsilon" in about_the_budget(noiseMultiplier=1.0)
    assert "the job wants epsilon 3.5 at delta 0.0001" in about_the_budget(epsilon=3.5)
    assert "the job wants epsilon 1 at delta 0.01" in about_the_budget(epsilon=1.0, delta=0.01)
    assert about_the_budget(epsilon=3.0) == ""


UNIT_SILO: dict[str, Any] = {"unit": "silo", "delta": 0.5, "maxUpdateNorm": 1.0}


def test_a_job_that_hides_silos_counts_by_the_noise_of_its_single_updates() -> None:
    """One round of one silo with sigma 8 is a mechanism of noise multiplier 4, as one example is hidden."""
    charged = epsilon_of([Mechanism(4.0)], 1e-4)
    assert 0.7 < charged < 0.8
    assert about_the_budget(**UNIT_SILO, noiseMultiplier=8.0) == ""
    assert (
        "and of one example the job's updates, each seen by itself, tell epsilon 5.373 with unit silo; ask"
        in about_the_budget(**UNIT_SILO, noiseMultiplier=1.5)
    )
    assert about_the_budget(SpentBudget(3 - charged), **UNIT_SILO, noiseMultiplier=8.0) == ""
    found = about_the_budget(SpentBudget(3 - charged + 0.01), **UNIT_SILO, noiseMultiplier=8.0)
    assert f"and the job wants {charged:.4g}; ask for less" in found


def test_a_budget_of_persons_has_room_for_jobs_that_hide_silos() -> None:
    """All of a person's examples together move a clipped change no farther than one example does."""
    where = silo(privacyBudget=[BUDGET[0] | {"unit": "person"}])
    for noise, wanted in ((8.0, []), (1.5, ["of one person the job's updates"])):
        given = {"differentialPrivacy": {**UNIT_SILO, "noiseMultiplier": noise}}
        spec = job_spec("fedavg", ["north"], privacy=given, data={"dataset": "digits"})
        found = objections(where, frozen_job(spec), declared_egress(spec), NOW)
        assert len(found) == len(wanted)
        assert all(text in line for text, line in zip(wanted, found, strict=True))


def test_of_a_job_that_hides_silos_is_reserved_what_its_updates_will_be_charged() -> None:
    given = {"differentialPrivacy": {**UNIT_SILO, "noiseMultiplier": 8.0}}
    job = frozen_job(job_spec("fedavg", ["north"], privacy=given))
    charged = epsilon_of([Mechanism(4.0)], 1e-4)
    assert reserved_epsilon(job, 0.0, 1e-4) == pytest.approx(charged)
    assert reserved_epsilon(job, charged, 1e-4) == 0
    plain = frozen_job(job_spec("fedavg", ["north"]))
    assert reserved_epsilon(plain, 0.0, 1e-4) == 0


def test_what_is_spent_already_counts_for_a_job_that_has_not_begun() -> None:
    assert about_the_budget(SpentBudget(2.0), epsilon=1.0) == ""
    found = about_the_budget(SpentBudget(2.5), epsilon=1.0)
    assert "permits epsilon 3 about digits, of which 2.5 is spent, and the job wants 1; ask for less" in found


def test_what_jobs_that_were_admitted_may_yet_spend_is_no_more_there() -> None:
    assert about_the_budget(SpentBudget(0.7, 1.1), epsilon=1.2) == ""
    found = about_the_budget(SpentBudget(0.7, 1.4), epsilon=1.0)
    assert (
        "of which 0.7 is spent and 1.4 is reserved for jobs that it has admitted, and the job wants 1"
        in found
    )
    assert found.endswith("or ask the institution for more, or wait until those have ended")


def test_a_budget_of_examples_is_not_spent_on_persons() -> None:
    assert about_the_budget(unit="person", epsilon=1.0) == (
        "policy.privacyBudget permits epsilon 3 at delta 0.0001 about digits for each example, and the job "
        "protects each person; write spec.privacy.differentialPrivacy.unit: example, or ask the institution for "
        "another budget"
    )


def test_a_budget_is_of_a_dataset_of_the_silo() -> None:
    with pytest.raises(ValueError, match=r"is not among spec\.datasets"):
        silo(privacyBudget=[{"dataset": "scans", "epsilon": 1.0, "delta": 1e-4}])
    with pytest.raises(ValueError, match="is named twice"):
        silo(privacyBudget=BUDGET * 2)
