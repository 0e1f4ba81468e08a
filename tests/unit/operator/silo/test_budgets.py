"""Privacy budgets on a cluster: where the ledger lies, what is spent and reserved, and which jobs have room."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from fedsilo.api.agent import SiloAgent
from fedsilo.api.budgets import BudgetStatus
from fedsilo.api.digest import spec_digest
from fedsilo.api.job import FederatedJobSpec
from fedsilo.api.observed import Object
from fedsilo.api.silo import Silo
from fedsilo.api.timestamps import timestamp
from fedsilo_operator.connector.mirrored import disclosed_status
from fedsilo_operator.names import agent_labels, agent_name
from fedsilo_operator.objects import CLAIM, POD, SILO_AGENT, SILO_KIND, Ref, ref_of
from fedsilo_operator.silo import signing_key
from fedsilo_operator.silo.budgets import budgets, observe_budgets
from fedsilo_operator.workloads import agent as children
from fedsilo_operator.workloads.agent import GUARD, TRAINER, ParsedAgent
from tests.unit.operator.silo.bench import Bench, fresh_object, virtually
from tests.unit.operator.silo.harness import (
    AGENT_REF,
    CHILDREN,
    JOB_REF,
    SETTINGS,
    SIGNING,
    SILO_REF,
    START,
    UID,
    World,
    agent,
    applied_objects,
    ended_status,
    job_spec,
    silo,
    stated_condition,
)

POLICY = {"privacyBudget": [{"dataset": "scans", "epsilon": 4.0, "delta": 1e-4}]}
LEDGERS = (CLAIM, "fedsilo-ledgers-north")
OTHER_UID = "0b1c2d3e-0000-4000-8000-000000000002"


def privacy_spec(epsilon: float) -> dict[str, Any]:
    return {"differentialPrivacy": {"unit": "example", "epsilon": epsilon, "delta": 1e-4}}


def scene(epsilon: float = 1.0, **options: Any) -> World:
    return World(agent(job_spec(privacy=privacy_spec(epsilon)), **options), silo(POLICY))


def other_agent(epsilon: float, status: Mapping[str, Any] | None = None) -> Object:
    """The agent of another job, which the silo has admitted."""
    made = copy.deepcopy(agent(job_spec(privacy=privacy_spec(epsilon)), suspend=True))
    name = agent_name(Ref("federation", "other"), OTHER_UID, SILO_REF)
    made["spec"]["job"] |= {"name": "other", "uid": OTHER_UID}
    made["metadata"] |= {
        "name": name,
        "uid": "a0000000-0000-4000-8000-000000000002",
        "labels": agent_labels(Ref("federation", "other"), OTHER_UID, SILO_REF, "silo-agent"),
    }
    job = FederatedJobSpec.model_validate(made["spec"]["job"]["spec"])
    made["spec"]["job"]["specDigest"] = spec_digest(job)
    conditions = [stated_condition("Admitted", "True", "Admitted", "")]
    made["status"] = {"conditions": conditions, **(status or {})}
    return made


def ledger(lines: int, spent: float, own: float, **more: Any) -> dict[str, Any]:
    """What a guard says of it."""
    return {
        "dataset": "scans",
        "lines": lines,
        "hash": f"{lines:064x}",
        "delta": 1e-4,
        "spent": spent,
        "ofJob": own,
        "later": [],
    } | more


def figures(world: World) -> BudgetStatus:
    """What the Silo's status says."""
    found = Silo.model_validate(world.objects[SILO_KIND][SILO_REF])
    (budget,) = budgets(
        found, observe_budgets(world, world.objects[SILO_KIND][SILO_REF], SILO_REF), world.now
    )
    return budget


def write_figures(world: World) -> None:
    status = world.objects[SILO_KIND][SILO_REF].setdefault("status", {})
    status["privacyBudget"] = [figures(world).model_dump(mode="json", by_alias=True)]


# --- Where the ledger lies.


def test_the_claim_of_the_ledgers_is_the_silos_and_outlives_every_job() -> None:
    world = scene()
    assert applied_objects(world.reconcile()) == [LEDGERS, *CHILDREN]
    claim = world.objects[CLAIM][Ref(SILO_REF.namespace, LEDGERS[1])]
    assert "ownerReferences" not in claim["metadata"]
    assert claim["metadata"]["labels"] == {
        "app.kubernetes.io/managed-by": "fedsilo-operator",
        "app.kubernetes.io/component": "ledgers",
        "fedsilo.io/silo": "north",
    }
    assert claim["spec"]["accessModes"] == ["ReadWriteOnce"]
    assert applied_objects(world.reconcile()) == []

    later = scene()
    later.objects[CLAIM] = {ref_of(claim): claim}
    assert applied_objects(later.reconcile()) == CHILDREN, "the next job uses it"


def test_a_silo_without_a_budget_for_the_dataset_has_no_claim_for_ledgers() -> None:
    world = World(agent(), silo())
    assert applied_objects(world.reconcile()) == CHILDREN
    guard = world.job(GUARD) or {}
    assert "ledgers" not in json.dumps(guard)


def parsed_agent() -> ParsedAgent:
    owner = agent(job_spec(privacy=privacy_spec(1.0)))
    return ParsedAgent(SiloAgent.model_validate(owner), Silo.model_validate(silo(POLICY)), owner)


def test_the_guard_alone_sees_the_ledgers() -> None:
    guard = children.guard_job(parsed_agent(), SETTINGS)["spec"]["template"]["spec"]
    (container,) = guard["containers"]
    mounted = {"name": "ledgers", "mountPath": "/var/lib/fedsilo-ledgers", "readOnly": False}
    assert mounted in container["volumeMounts"]
    assert "--ledgers /var/lib/fedsilo-ledgers" in " ".join(container["args"])

    trainer = children.trainer_job(parsed_agent(), SETTINGS)["spec"]["template"]["spec"]
    for each in (*trainer["containers"], *trainer["initContainers"]):
        assert "ledgers" not in json.dumps(each)


def test_the_trainer_is_placed_where_the_ledgers_are_and_beside_those_that_use_them() -> None:
    template = children.trainer_job(parsed_agent(), SETTINGS)["spec"]["template"]
    source = {"persistentVolumeClaim": {"claimName": LEDGERS[1]}}
    assert {"name": "ledgers", **source} in template["spec"]["volumes"]
    (term,) = template["spec"]["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    wanted = term["labelSelector"]["matchLabels"]
    assert wanted.items() <= template["metadata"]["labels"].items(), "the first one may run anywhere"
    assert term["topologyKey"] == "kubernetes.io/hostname"


# --- Which jobs have room.


def test_a_job_with_room_in_the_budget_is_admitted() -> None:
    world = scene(4.0, suspend=True)
    world.reconcile()
    assert world.phase == "Admitted"


def test_what_is_spent_and_reserved_leaves_no_room_and_that_is_said_with_figures() -> None:
    world = scene(1.5, suspend=True)
    world.put(other_agent(3.0, {"ledger": ledger(9, 2.1, 0.5)}))
    world.reconcile()
    assert world.conditions["Admitted"] == ("False", "PolicyRefused")
    assert (
        "Silo north: policy.privacyBudget permits epsilon 4 about scans, of which 2.1 is spent and 2.5 is reserved for "
        "jobs that it has admitted, and the job wants 1.5; ask for less"
    ) in world.message


def test_a_job_that_has_begun_is_not_asked_again() -> None:
    world = scene(3.0)
    world.reconcile()
    world.put(other_agent(3.0, {"ledger": ledger(9, 3.9, 0.9)}))
    world.reconcile()
    assert world.conditions["Admitted"] == ("True", "Admitted"), "its ledger says what may leave"


def test_a_job_that_was_refused_or_has_ended_reserves_nothing() -> None:
    world = scene(3.0, suspend=True)
    conditions = [
        stated_condition("Admitted", "True", "Admitted", ""),
        stated_condition("Finished", "True", "Finished", ""),
    ]
    world.put(other_agent(3.0, {"conditions": conditions, "ledger": ledger(9, 0.9, 0.9)}))
    world.reconcile()
    assert world.phase == "Admitted"
    world.put(other_agent(3.0, {"conditions": [stated_condition("Admitted", "False", "PolicyRefused", "")]}))
    world.reconcile()
    assert world.phase == "Admitted"


def test_without_a_stated_epsilon_no_job_is_admitted() -> None:
    world = World(agent(), silo(POLICY))
    world.reconcile()
    assert world.conditions["Admitted"] == ("False", "PolicyRefused")
    assert "add it" in world.message


# --- What is spent.


def end_guard(world: World, **said: Any) -> None:
    job = world.job(GUARD)
    assert job is not None
    (pod,) = world.pods_of(job)
    pod["status"] = ended_status(137, json.dumps(said))


def running() -> World:
    world = scene(3.0)
    world.reconcile()
    world.run_all()
    world.reconcile()
    return world


def test_what_a_guard_has_said_stands_in_both_statuses() -> None:
    world = running()
    assert (figures(world).spent, figures(world).reserved, figures(world).left) == (0, 3, 1)
    end_guard(world, ledger=ledger(5, 1.9, 1.2))
    world.reconcile()
    assert world.agent["status"]["ledger"] == ledger(5, 1.9, 1.2)
    assert world.plan().status is None, "it is written once"
    found = figures(world)
    assert (found.spent, found.reserved, found.lines) == (1.9, 1.8, 5)
    (job,) = found.jobs
    assert (job.job, job.uid, job.spent, job.reserved) == (str(JOB_REF), UID, 1.2, 1.8)


def test_once_a_job_has_ended_what_it_did_not_spend_is_there_again() -> None:
    world = running()
    end_guard(world, ledger=ledger(5, 1.9, 1.2))
    world.end(TRAINER, "Complete")
    world.end(GUARD, "Complete")
    world.reconcile()
    assert world.phase == "Finished"
    assert (figures(world).spent, figures(world).reserved, figures(world).left) == (1.9, 0, 4 - 1.9)


def test_the_figures_outlive_the_agent_and_wait_for_its_guard() -> None:
    world = running()
    write_figures(world)
    del world.objects[SILO_AGENT][AGENT_REF]
    assert figures(world).reserved == 3, "its guard has yet to end"
    end_guard(world, ledger=ledger(5, 1.9, 1.2))
    write_figures(world)
    world.objects[POD].clear()
    found = figures(world)
    assert (found.spent, found.reserved, found.jobs[0].spent) == (1.9, 0, 1.2)


def test_the_longest_ledger_counts() -> None:
    world = running()
    world.put(other_agent(1.0, {"ledger": ledger(9, 2.5, 0.5)}))
    end_guard(world, ledger=ledger(5, 1.9, 1.2))
    assert figures(world).spent == 2.5
    write_figures(world)
    del world.objects[SILO_AGENT][
        Ref(SILO_REF.namespace, agent_name(Ref("federation", "other"), OTHER_UID, SILO_REF))
    ]
    assert figures(world).spent == 2.5, "an earlier word takes nothing back"


def test_with_a_period_what_was_spent_ends_without_any_guard() -> None:
    world = running()
    later = [
        {"since": timestamp(START + timedelta(hours=1)), "spent": 0.7},
        {"since": timestamp(START + timedelta(hours=2)), "spent": 0.0},
    ]
    end_guard(world, ledger=ledger(5, 1.9, 1.2, later=later))
    write_figures(world)
    world.pass_time(3599)
    assert figures(world).spent == 1.9
    world.pass_time(2)
    write_figures(world)
    assert (figures(world).spent, len(figures(world).later)) == (0.7, 1)
    world.pass_time(3600)
    assert figures(world).spent == 0


def test_anything_else_is_no_word_of_a_ledger() -> None:
    wrong: tuple[Any, ...] = (
        None,
        7,
        [],
        {"dataset": "scans"},
        ledger(5, -1.0, 0.0),
        ledger(5, 1.0, 1.0) | {"hash": "<b>"},
    )
    for said in wrong:
        world = running()
        end_guard(world, ledger=said)
        world.reconcile()
        assert "ledger" not in world.agent["status"]
        assert figures(world).spent == 0


def test_the_hub_of_an_institution_is_not_told() -> None:
    world = running()
    end_guard(world, ledger=ledger(5, 1.9, 1.2))
    world.reconcile()
    assert "ledger" not in disclosed_status(AGENT_REF, world.agent["status"])


# --- In the Silo's status.


def test_the_silo_says_what_is_spent_as_long_as_it_has_budgets() -> None:
    world = running()
    found = world.objects[SILO_KIND][SILO_REF]

    def planned_status() -> Any:
        seen = signing_key.KeyObservation(found, None, budgets=observe_budgets(world, found, SILO_REF))
        return signing_key.reconcile(seen, world.now, lambda: SIGNING).status

    status = planned_status()
    assert status["privacyBudget"][0]["reserved"] == 3
    found["status"] = status
    assert planned_status() is None
    found["spec"]["policy"] = {}
    assert planned_status()["privacyBudget"] == []
    found["status"]["privacyBudget"] = []
    assert planned_status() is None


def test_a_silo_with_two_names_for_the_data_of_a_budget_says_so_until_it_has_one() -> None:
    found = fresh_object(silo(POLICY))
    scans = found["spec"]["datasets"][0] | {
        "loader": "npz",
        "config": {"path": "scans/x.npz"},
        "volume": {"persistentVolumeClaim": "scans"},
    }
    again = scans | {"name": "again", "config": {"path": "again/x.npz"}}
    found["spec"]["datasets"] = [scans, again]

    def plan() -> Any:
        return signing_key.reconcile(signing_key.KeyObservation(found, None), START, lambda: SIGNING)

    found["status"] = {"publicKey": SIGNING.verify_key.to_text()}
    told = plan()
    (condition,) = [one for one in told.status["conditions"] if one["type"] == "BudgetsSeparate"]
    assert (condition["status"], condition["reason"]) == ("False", "SameData")
    assert "datasets scans and again are of the same data, and again has no budget" in condition["message"]
    assert [event.type for event in told.events if event.reason == "SameData"] == ["Warning"]
    found["status"] = told.status
    assert [event for event in plan().events if event.reason == "SameData"] == []
    found["spec"]["datasets"] = [scans | {"loader": {}}, again]
    stays = [one for one in plan().status["conditions"] if one["type"] == "BudgetsSeparate"]
    assert [one["message"] for one in stays] == [condition["message"]], "nothing was compared"
    found["spec"]["datasets"] = [scans]
    (condition,) = [one for one in plan().status["conditions"] if one["type"] == "BudgetsSeparate"]
    assert (condition["status"], condition["reason"]) == ("True", "Separate")


def stating(number: int, public_key: str) -> Object:
    """One of several jobs' agents, which states an epsilon of 1.5."""
    uid = f"0b1c2d3e-0000-4000-8000-00000000001{number}"
    private = {"differentialPrivacy": {"unit": "example", "epsilon": 1.5, "delta": 1e-4}}
    made = fresh_object(agent(job_spec(privacy=private), suspend=True, publicKey=public_key))
    job = Ref("federation", f"job-{number}")
    made["spec"]["job"] |= {"name": job.name, "uid": uid}
    made["metadata"] |= {
        "name": agent_name(job, uid, SILO_REF),
        "labels": agent_labels(job, uid, SILO_REF, "silo-agent"),
    }
    return made


@virtually
async def test_jobs_that_come_together_share_the_budget_and_the_next_one_follows(bench: Bench) -> None:
    budget = [{"dataset": "scans", "epsilon": 4.0, "delta": 1e-4}]
    bench.cluster.put(fresh_object(silo({"privacyBudget": budget})))
    await bench.wait_until(lambda: bench.silo()["status"]["publicKey"])
    for number in range(5):
        bench.cluster.put(stating(number, bench.silo()["status"]["publicKey"]), "fedsilo-operator")

    def phases() -> list[str]:
        return sorted(each["status"]["phase"] for each in bench.cluster.objects(SILO_AGENT))

    def spent_budget() -> Object:
        found: Object = bench.silo()["status"]["privacyBudget"][0]
        return found

    await bench.wait_until(lambda: phases() == ["Admitted"] * 2 + ["Refused"] * 3)
    await bench.wait_until(lambda: spent_budget()["reserved"] == 3)
    assert (spent_budget()["left"], len(spent_budget()["jobs"])) == (1, 2)
    assert await bench.writes(2000) == []
    admitted = next(
        each for each in bench.cluster.objects(SILO_AGENT) if each["status"]["phase"] == "Admitted"
    )
    bench.cluster.remove(SILO_AGENT, ref_of(admitted))
    await bench.wait_until(lambda: phases() == ["Admitted"] * 2 + ["Refused"] * 2)
    assert await bench.writes(2000) == []
