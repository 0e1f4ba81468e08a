"""docs/privacy-budget.md on a real cluster: a ledger that outlives jobs, and a second job for which it has no room."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from fedsilo.api.observed import Object, condition
from hack.cluster.kubectl import Kubectl
from tests.cluster.federation import ClusterFederation, federation
from tests.cluster.namespace import Namespace, wait_until
from tests.pages import runs
from tests.terminal import Terminal

pytestmark = pytest.mark.timeout(900)

CLAIM = "fedsilo-ledgers-north"


@pytest.fixture(scope="module")
def budgeted_federation(kubectl: Kubectl, operator: Namespace) -> Iterator[ClusterFederation]:
    """The job of examples/private.yaml with fewer rounds, where one silo alone has a budget; it has ended."""
    with federation(kubectl, "private.yaml", training={"rounds": 3}) as made:
        for silo in ("east", "south", "west"):  # whose figures differ a little
            del made.silo_object(silo)["spec"]["policy"]["privacyBudget"]
        made.apply()
        made.wait_complete()
        yield made


def stated_budget(made: ClusterFederation) -> Mapping[str, Any]:
    """What the Silo says of its budget."""
    found = made.silo("north").get("silo", "north").get("status", {}).get("privacyBudget", ())
    return next(iter(found), {})


def test_what_the_job_has_spent_is_in_the_silos_status(budgeted_federation: ClusterFederation) -> None:
    assert budgeted_federation.condition("Complete")["status"] == "True", budgeted_federation.story()
    budget = wait_until(
        lambda: (
            stated_budget(budgeted_federation)
            if not stated_budget(budgeted_federation).get("reserved", 1)
            else None
        ),
        "the figures",
    )
    assert 2.9 < budget["spent"] <= 3, "what the job states"
    assert budget["left"] == pytest.approx(4 - budget["spent"])
    (job,) = budget["jobs"]
    assert (job["uid"], job["spent"]) == (
        budgeted_federation.observed_job()["metadata"]["uid"],
        budget["spent"],
    )
    (agent,) = budgeted_federation.silo("north").select("siloagents", "fedsilo.io/silo=north")
    assert agent["status"]["ledger"]["spent"] == budget["spent"]


def test_the_ledger_lies_in_a_claim_that_nothing_owns_and_only_the_guard_mounts(
    budgeted_federation: ClusterFederation,
) -> None:
    north = budgeted_federation.silo("north")
    assert "ownerReferences" not in north.get("persistentvolumeclaim", CLAIM)["metadata"]
    for component, mounted in (("guard", True), ("trainer", False)):
        for job in north.select("jobs", f"app.kubernetes.io/component={component}"):
            pod = job["spec"]["template"]["spec"]
            each = [*pod["containers"], *pod.get("initContainers", ())]
            names = {mount["name"] for container in each for mount in container["volumeMounts"]}
            assert ("ledgers" in names) == mounted


@runs("docs/privacy-budget.md", "kubectl fedsilo budget north -n silo-north")
def test_the_command_shows_it(budgeted_federation: ClusterFederation, terminal: Terminal) -> None:
    (command,) = terminal.commands
    namespace = budgeted_federation.silo("north").name
    head, row = terminal.type(command, {"-n silo-north": f"-n {namespace}"}).splitlines()
    assert head.split() == [
        "SILO",
        "DATASET",
        "UNIT",
        "EPSILON",
        "DELTA",
        "SPENT",
        "RESERVED",
        "LEFT",
        "BY",
        "JOB",
    ]
    assert row.split()[:5] == [f"{namespace}/north", "digits", "example", "4", "0.001"]


def second(made: ClusterFederation, epsilon: float) -> Object:
    """The federation's job once more, with another epsilon."""
    job = copy.deepcopy(made.job)
    job["metadata"]["name"] = "digits-again"
    job["spec"]["privacy"]["differentialPrivacy"]["epsilon"] = epsilon
    return job


def test_a_second_job_is_refused_with_the_figures_and_one_with_room_admitted(
    budgeted_federation: ClusterFederation,
) -> None:
    spent, home = stated_budget(budgeted_federation)["spent"], budgeted_federation.home

    def admitted_condition() -> Any:
        found = condition(home.get("federatedjob", "digits-again"), "Admitted")
        return found if found is not None and found["reason"] != "Admitting" else None

    home.apply(second(budgeted_federation, 2.0))
    found = wait_until(admitted_condition, "the silos' decisions")
    assert (found["status"], found["reason"]) == ("False", "PolicyRefused")
    said = f"permits epsilon 4 about digits, of which {spent:.4g} is spent, and the job wants 2; ask for less"
    assert said in found["message"]
    home.run("delete", "federatedjob", "digits-again", timeout=90)
    wait_until(lambda: home.find("federatedjob", "digits-again") is None, "the job to be gone")
    assert budgeted_federation.silo("north").get("persistentvolumeclaim", CLAIM)["status"]["phase"] == "Bound"

    home.apply(
        second(budgeted_federation, 0.5)
        | {"spec": {**second(budgeted_federation, 0.5)["spec"], "suspend": True}}
    )
    found = wait_until(admitted_condition, "the silos' decisions")
    assert found["status"] == "True", found["message"]
    wait_until(
        lambda: stated_budget(budgeted_federation)["reserved"] == 0.5, "what it may spend to be reserved"
    )
    home.run("delete", "federatedjob", "digits-again", timeout=90)
    wait_until(
        lambda: stated_budget(budgeted_federation)["reserved"] == 0, "what it reserved to be there again"
    )
