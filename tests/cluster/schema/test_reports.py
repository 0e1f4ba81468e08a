"""What an aggregator may say of its job, and nothing else, whatever roles permit."""

from __future__ import annotations

import pytest

from fedsilo.api.observed import Object
from hack.cluster.kubectl import Kubectl, KubectlError
from tests.cluster.schema.federation import (
    AGGREGATOR,
    NAMESPACE,
    NOW,
    OPERATOR,
    SILO,
    SILOS,
    aggregators,
    conditions,
    job,
    operators,
    patch,
    refusal_text,
    report,
)


@pytest.fixture
def aggregator(api: Kubectl, name: str) -> Kubectl:
    """The job's aggregator, with a role that lets it do more than it should."""
    owner = f"{name}-aggregator"
    api.run("create", "serviceaccount", owner, "-n", "federation")
    subject = f"--serviceaccount=federation:{owner}"
    api.run("create", "clusterrolebinding", owner, "--clusterrole=cluster-admin", subject)
    return api.as_service_account(NAMESPACE, owner)


def test_an_aggregator_reports_what_is_its_own(api: Kubectl, name: str, aggregator: Kubectl) -> None:
    report(aggregator, name, aggregators(), AGGREGATOR)
    report(api, name, operators(phase="Starting"))
    done = aggregators(round=10, model={"path": "model.safetensors", "sha256": "0" * 64, "claim": "c"})
    del done["step"], done["roundDeadline"], done["metrics"]
    report(aggregator, name, done, AGGREGATOR)
    status = api.get("fj", name, "-n", NAMESPACE)["status"]
    assert (status["phase"], status["round"], "step" in status) == ("Starting", 10, False)
    assert [(silo["name"], silo["phase"], silo["state"]) for silo in status["silos"]] == [
        (silo, "Running", "Reported") for silo in SILOS
    ]


def test_the_order_in_which_an_aggregator_names_the_silos_is_its_own(name: str, aggregator: Kubectl) -> None:
    report(
        aggregator,
        name,
        aggregators(silos=[{"name": silo, "state": "Idle"} for silo in sorted(SILOS)]),
        AGGREGATOR,
    )
    report(aggregator, name, aggregators(silos=[{"name": "north", "state": "Awaited"}]), AGGREGATOR)


def test_a_silo_that_the_operator_drops_is_no_obstacle(api: Kubectl, name: str, aggregator: Kubectl) -> None:
    report(aggregator, name, aggregators(), AGGREGATOR)
    left = operators()["silos"][:2]
    report(api, name, operators(silos=left))
    report(aggregator, name, aggregators(silos=[{"name": "west", "state": "Awaited"}]), AGGREGATOR)
    assert {silo["name"] for silo in api.get("fj", name, "-n", NAMESPACE)["status"]["silos"]} == {
        "west",
        "north",
    }


TAKEN_FIELDS_MESSAGE = (
    "the report takes fields from another manager; use server-side apply as fedsilo-aggregator, without force"
)
NOT_ITS_OWN: dict[str, tuple[Object, str]] = {
    "phase": ({"phase": "Complete"}, "status.phase: is not for the aggregator to report; leave it out"),
    "end": (
        {"completionTime": NOW},
        "status.completionTime: is not for the aggregator to report; leave it out",
    ),
    "condition": (
        {"conditions": conditions(Complete="True")},
        "status.conditions: is not for the aggregator to report; leave it out",
    ),
    "phase as it is": (
        {"phase": "Running"},
        "the report shares status fields of the operator; leave them out",
    ),
    "condition as it is": (
        {"conditions": conditions(Running="True")},
        "the report shares status fields of the operator; leave them out",
    ),
    "phase of a silo": ({"silos": [{"name": "west", "phase": "Failed"}]}, TAKEN_FIELDS_MESSAGE),
    "namespace of a silo as it is": (
        {"silos": [{"name": "west", "namespace": "silo-west"}]},
        "status.silos: the aggregator reports name, state, hindrance, lastRound, samples, bytesSent, update, kept and "
        "personalAccuracy; leave out the rest",
    ),
    "silo that there is not": (
        {"silos": [{"name": "east", "state": "Reported"}]},
        "status.silos: names a silo that the operator does not list; report the job's silos only",
    ),
}


@pytest.mark.parametrize("case", NOT_ITS_OWN)
def test_an_aggregator_does_not_report_for_the_operator(name: str, aggregator: Kubectl, case: str) -> None:
    status, words = NOT_ITS_OWN[case]
    with pytest.raises(KubectlError) as failed:
        report(aggregator, name, aggregators(**status), AGGREGATOR, "--force-conflicts")
    assert refusal_text(failed) == words


def test_an_aggregator_does_not_pass_for_the_operator(name: str, aggregator: Kubectl) -> None:
    with pytest.raises(KubectlError) as failed:
        report(aggregator, name, operators(silos=[]), OPERATOR)
    assert refusal_text(failed) == TAKEN_FIELDS_MESSAGE


def test_an_aggregator_cannot_make_the_server_forget_who_owns_what(
    api: Kubectl, name: str, aggregator: Kubectl
) -> None:
    patch(aggregator, "fj", name, {"metadata": {"managedFields": [{}]}}, "--subresource=status")
    managed = api.get("fj", name, "-n", "federation", "--show-managed-fields")["metadata"]["managedFields"]
    assert {owner["manager"] for owner in managed} == {"kubectl", OPERATOR}


@pytest.mark.parametrize(
    ("manager", "words"),
    [
        (AGGREGATOR, "a report is made by server-side apply to the status; use an apply patch"),
        ("kubectl-patch", TAKEN_FIELDS_MESSAGE),
    ],
)
def test_an_aggregator_does_not_patch(name: str, aggregator: Kubectl, manager: str, words: str) -> None:
    change = {"status": {"round": 9}}
    with pytest.raises(KubectlError) as failed:
        patch(aggregator, "fj", name, change, "--subresource=status", f"--field-manager={manager}")
    assert refusal_text(failed) == words


def test_an_aggregator_touches_nothing_else(api: Kubectl, name: str, aggregator: Kubectl) -> None:
    api.apply(job("another"))
    report(api, "another", operators())
    words = (
        f"{aggregator.account} is the account of an aggregator, which may only report into the status of its own "
        "FederatedJob; use another account"
    )
    tries = (
        lambda: report(aggregator, "another", aggregators(), AGGREGATOR),
        lambda: patch(aggregator, "fj", name, {"spec": {"suspend": True}}),
        lambda: patch(aggregator, "fj", name, {"metadata": {"labels": {"a": "b"}}}),
        lambda: patch(aggregator, "fj", name, {"metadata": {"finalizers": []}}),
        lambda: aggregator.run("delete", "fj", name, "-n", "federation"),
        lambda: aggregator.run("delete", "fj", "--all", "-n", "federation"),
        lambda: aggregator.apply(SILO),
        lambda: aggregator.apply(job("third")),
    )
    for attempt in tries:
        with pytest.raises(KubectlError) as failed:
            attempt()
        assert refusal_text(failed).splitlines()[0] == words
    api.run("delete", "fj", "another", "-n", "federation")


def test_an_aggregator_of_another_namespace_is_another_account(api: Kubectl, name: str) -> None:
    other = f"{name}-aggregator"
    api.run("create", "serviceaccount", other, "-n", "silo-east")
    subject = f"--serviceaccount=silo-east:{other}"
    api.run("create", "clusterrolebinding", f"{other}-east", "--clusterrole=cluster-admin", subject)
    with pytest.raises(KubectlError, match="may only report into the status of its own FederatedJob"):
        report(api.as_service_account("silo-east", other), name, aggregators(), AGGREGATOR)


def test_a_thousand_silos_are_reported(api: Kubectl, aggregator: Kubectl, name: str) -> None:
    names = [f"{'s' * 35}-{number}" for number in range(1000)]
    silos = [
        {"name": silo, "namespace": "silo-north", "phase": "Running", "message": "m" * 100} for silo in names
    ]
    report(api, name, operators(silos=silos))
    seen = [
        {"name": silo, "state": "Reported", "lastRound": 3, "samples": 4, "bytesSent": 5} for silo in names
    ]
    report(aggregator, name, aggregators(silos=seen), AGGREGATOR)
