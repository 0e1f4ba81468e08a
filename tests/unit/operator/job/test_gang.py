"""All agents of a job run within its start deadline, or it frees what it holds, and says for whom and until when."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from fedsilo.api.observed import Object
from fedsilo.api.timestamps import parse_timestamp, timestamp
from fedsilo_operator.job.gang import NO_GANG, Gang, pause
from fedsilo_operator.objects import FEDERATED_JOB, JOB, Ref
from tests.unit.operator.job.harness import JobHarness
from tests.unit.operator.job.objects import EAST, NORTH, SOUTH, START, manifest

NO_GPU = "No node can take the trainer, which asks for 2 nvidia.com/gpu: 0/1 nodes are available."
ADMISSION = ("True", "Admitted", "admitted")


def crowd(harness: JobHarness, *refs: Any, reason: str = "Unschedulable", message: str = NO_GPU) -> None:
    """There is no room for these silos' agents."""
    for ref in refs:
        harness.say(ref, "Starting", Admitted=ADMISSION, Ready=("False", reason, message))


def pass_time(harness: JobHarness, seconds: float) -> None:
    harness.now += timedelta(seconds=seconds)
    harness.settle()


def asks(harness: JobHarness) -> list[bool]:
    """Whether the agents are asked to run, by silo."""
    agents = [harness.agent(ref) for ref in (NORTH, SOUTH)]
    return [not agent["spec"]["suspend"] for agent in agents]


def gang(harness: JobHarness) -> Any:
    return harness.job["status"].get("gang")


def half_started(**spec: Any) -> JobHarness:
    """A job of which north's agent runs, and for south's there is no room."""
    harness = JobHarness(manifest(**spec)).start_job()
    harness.run(NORTH)
    crowd(harness, SOUTH)
    harness.settle()
    return harness


def competitor(
    name: str,
    waits: str = "",
    runs: str = "",
    *,
    age_seconds: float = 60,
    priority: int = 0,
    silos: Sequence[Ref] = (NORTH, SOUTH),
    **gang: Any,
) -> Object:
    """Another job that has started, as its status describes it."""
    made = manifest(priority=priority)
    made["metadata"]["name"] = name
    phases = {ref: "Running" if str(ref) == runs else "Starting" for ref in silos}
    entries = [
        {"name": ref.name, "namespace": ref.namespace, "phase": phase} for ref, phase in phases.items()
    ]
    if waits:
        gang["awaited"] = [{"silo": waits, "reason": "Unschedulable", "message": NO_GPU}]
    status = {"startTime": timestamp(START), "silos": entries, "gang": gang}
    made["metadata"]["creationTimestamp"] = timestamp(START - timedelta(seconds=age_seconds))
    return made | {"status": status}


def put_competitor(harness: JobHarness, made: Object) -> None:
    """An object older than those of the harness, which a cluster would not let a test make."""
    before, created = harness.now, parse_timestamp(made["metadata"].pop("creationTimestamp"))
    harness.now = created
    harness.cluster.put(made)
    harness.now = before


def test_a_job_frees_what_it_holds_when_its_agents_do_not_all_run_in_time() -> None:
    harness = half_started()
    until = parse_timestamp(gang(harness)["deadline"])
    assert START + timedelta(minutes=10) <= until <= START + timedelta(minutes=11)
    status, reason, message = harness.condition("SilosReady") or ("", "", "")
    assert (status, reason) == ("False", "Unschedulable")
    assert f"If not all agents run by {timestamp(until)}, the job frees what it holds." in message
    pass_time(harness, 590)
    assert asks(harness) == [True, True], "there is time left"
    pass_time(harness, 20)
    assert asks(harness) == [False, False]
    status, reason, message = harness.condition("SilosReady") or ("", "", "")
    assert (status, reason) == ("False", "GangIncomplete")
    assert f"Silo {SOUTH}: {NO_GPU}" in message
    assert f"It tries again at {gang(harness)['retryTime']}" in message
    assert harness.condition("Running") == (
        "False",
        "GangIncomplete",
        "The aggregator waits for the silos' agents to run together.",
    )
    assert ("Warning", "GangIncomplete") in harness.events()


def test_it_tries_again_at_its_time_and_the_pauses_grow() -> None:
    harness = half_started(startDeadline="1m")
    pauses = []
    for attempt in (1, 2, 3):
        pass_time(harness, 61)
        assert gang(harness)["attempt"] == attempt
        retry = parse_timestamp(gang(harness)["retryTime"])
        pauses.append((retry - harness.now).total_seconds())
        pass_time(harness, pauses[-1] - 3)
        assert asks(harness) == [False, False]
        pass_time(harness, 5)
        assert asks(harness) == [True, True]
        assert "deadline" in gang(harness)
        assert "retryTime" not in gang(harness)
        harness.run(NORTH)
        crowd(harness, SOUTH)
        harness.settle()
    assert pauses == sorted(pauses)


def test_once_all_agents_run_nothing_of_it_is_left() -> None:
    harness = half_started(startDeadline="1m")
    pass_time(harness, 61)
    pass_time(harness, 61)
    harness.run(NORTH, SOUTH)
    harness.settle()
    assert gang(harness) is None
    assert (harness.condition("SilosReady") or ("",))[0] == "True"
    assert harness.cluster.objects(JOB)


def test_jitter_follows_from_the_job_and_the_attempt() -> None:
    found = {pause(f"uid-{number}", 1).total_seconds() for number in range(20)}
    assert all(30 <= seconds < 60 for seconds in found)
    assert len(found) == 20
    assert pause("a", 3) == pause("a", 3)
    assert max(pause("a", attempt).total_seconds() for attempt in range(1, 50)) < 600


def test_a_restarted_operator_keeps_the_deadline_and_the_pause() -> None:
    harness = half_started()
    before = gang(harness)
    pass_time(harness, 300)
    assert gang(harness) == before, "time passes without a write"
    assert harness.plan().settled


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("ApprovalPending", "a person has to decide"),
        ("PolicyRefused", "the policy does not permit it any more"),
    ],
)
def test_a_person_s_decision_does_not_count(reason: str, said: str) -> None:
    harness = JobHarness().start_job()
    harness.run(NORTH)
    harness.refuse(SOUTH, reason, said)
    harness.settle()
    pass_time(harness, 3600)
    assert asks(harness) == [True, True]
    assert gang(harness) is None


def test_a_queue_counts_only_while_others_hold_what_they_do_not_use() -> None:
    harness = JobHarness().start_job()
    text = "The trainer waits: queue team has suspended Job x (spec.suspend)."
    crowd(harness, NORTH, SOUTH, reason="SuspendedBy", message=text)
    harness.settle()
    pass_time(harness, 3600)
    assert asks(harness) == [True, True], "in both queues, and nothing is held"
    assert (harness.condition("SilosReady") or ("", ""))[1] == "SuspendedBy"
    assert ("Normal", "SuspendedBy") in harness.events()
    harness.run(NORTH)
    harness.settle()
    pass_time(harness, 601)
    assert asks(harness) == [False, False]


def test_with_a_quorum_the_job_begins_without_the_others() -> None:
    harness = half_started(participation={"minSilos": 1})
    assert not harness.cluster.objects(JOB), "all are waited for at first"
    pass_time(harness, 601)
    assert asks(harness) == [True, True]
    assert harness.cluster.objects(JOB)


def test_the_competitor_is_named_and_its_end_wakes_the_job() -> None:
    harness = half_started(startDeadline="1m")
    put_competitor(harness, competitor("first", runs=str(SOUTH)))
    pass_time(harness, 61)
    assert gang(harness)["competitors"] == ["federation/first"]
    assert "In these silos run, or go first: federation/first." in (harness.condition("SilosReady") or "")[2]
    assert asks(harness) == [False, False]
    other = next(job for job in harness.cluster.objects(FEDERATED_JOB) if job["metadata"]["name"] == "first")
    complete = {"type": "Complete", "status": "True", "reason": "Complete", "message": ""}
    harness.cluster.put(other | {"status": other["status"] | {"conditions": [complete]}})
    harness.settle()
    assert asks(harness) == [True, True], "long before its time"


def test_of_two_jobs_that_find_no_room_the_younger_gives_way_at_once() -> None:
    harness = half_started()
    put_competitor(harness, competitor("older", waits=str(NORTH), deadline=timestamp(START)))
    harness.settle()
    assert asks(harness) == [False, False]
    assert gang(harness)["competitors"] == ["federation/older"]


def test_a_job_that_waits_in_one_silo_for_one_that_goes_first_in_another_stays_put_off() -> None:
    harness = half_started()
    put_competitor(harness, competitor("older", waits=str(NORTH), deadline=timestamp(START), silos=(NORTH,)))
    harness.settle()
    before = gang(harness)
    assert asks(harness) == [False, False]
    pass_time(harness, 20)
    assert gang(harness) == before


def test_the_older_job_does_not_give_way() -> None:
    harness = half_started()
    put_competitor(harness, competitor("younger", waits=str(NORTH), age_seconds=-60))
    harness.settle()
    assert asks(harness) == [True, True]


def test_priority_goes_before_age() -> None:
    harness = half_started()
    put_competitor(harness, competitor("urgent", waits=str(NORTH), age_seconds=-60, priority=5))
    harness.settle()
    assert asks(harness) == [False, False]
    harness = half_started(priority=7)
    put_competitor(harness, competitor("urgent", waits=str(NORTH), age_seconds=-60, priority=5))
    harness.settle()
    assert asks(harness) == [True, True]


def test_a_job_that_has_not_begun_lets_one_that_waits_go_first() -> None:
    harness = JobHarness()
    put_competitor(harness, competitor("older", waits=str(NORTH)))
    harness.start_job()
    assert asks(harness) == [False, False]
    assert (harness.condition("SilosReady") or ("", ""))[1] == "GangIncomplete"


def test_no_job_takes_from_under_a_waiting_one_of_higher_priority() -> None:
    waits: dict[str, Any] = {"retryTime": timestamp(START + timedelta(hours=1)), "attempt": 3}
    for priority, begins in ((0, True), (1, False)):
        harness = JobHarness()
        put_competitor(harness, competitor("holds", runs=str(NORTH), age_seconds=600))
        known = {**waits, "competitors": ["federation/holds"]}
        put_competitor(harness, competitor("waits", waits=str(NORTH), priority=priority, **known))
        harness.start_job()
        assert asks(harness) == [begins, begins]


def test_a_job_that_made_room_for_one_of_higher_priority_leaves_it_to_that() -> None:
    """A job that took the room back would find itself in the way and free it again, without a pause."""
    harness = half_started()
    known: dict[str, Any] = {
        "competitors": ["federation/digits"],
        "retryTime": timestamp(START + timedelta(hours=1)),
    }
    put_competitor(harness, competitor("urgent", waits=str(SOUTH), priority=5, attempt=1, **known))
    harness.settle()
    assert harness.job["metadata"]["name"] == "digits"
    before = gang(harness)
    assert (asks(harness), before["competitors"]) == ([False, False], ["federation/urgent"])
    pass_time(harness, 15)
    assert (asks(harness), gang(harness)) == ([False, False], before)


def test_a_job_over_other_silos_is_no_competitor() -> None:
    harness = half_started()
    put_competitor(harness, competitor("older", waits=str(EAST)))
    harness.settle()
    assert asks(harness) == [True, True]


def test_after_a_drain_the_job_keeps_its_rounds_and_stops_their_clock() -> None:
    harness = JobHarness().running()
    round_end = timestamp(harness.now + timedelta(minutes=10))
    harness.cluster.put(
        harness.job | {"status": harness.job["status"] | {"round": 1, "roundDeadline": round_end}},
        "fedsilo-aggregator",
    )
    crowd(harness, SOUTH)
    harness.settle()
    deadline = parse_timestamp(gang(harness)["deadline"])
    assert deadline == parse_timestamp(round_end) - timedelta(minutes=5), "half of it is left"
    pass_time(harness, 310)
    assert asks(harness) == [False, False]
    assert harness.batch()["spec"]["suspend"] is True
    assert harness.job["status"]["round"] == 1
    assert harness.phase() == "Starting"


def test_a_queue_that_takes_the_quorum_stops_the_aggregator_at_once() -> None:
    harness = JobHarness().running()
    crowd(harness, SOUTH, reason="SuspendedBy", message="The trainer waits.")
    harness.settle()
    assert harness.batch()["spec"]["suspend"] is True
    assert asks(harness) == [True, True]
    harness.run(SOUTH)
    harness.settle()
    assert harness.batch()["spec"]["suspend"] is False


def test_suspension_by_a_person_starts_afresh() -> None:
    harness = half_started(startDeadline="1m")
    pass_time(harness, 61)
    harness.change(suspend=True)
    harness.settle()
    assert gang(harness) is None
    harness.change(suspend=False)
    harness.settle()
    assert asks(harness) == [True, True]


def test_what_cannot_be_read_counts_as_nothing() -> None:
    job = manifest()
    for stated in ({"attempt": "many"}, {"deadline": "soon"}, {"surprise": 1}):
        assert Gang.read(job | {"status": {"gang": stated}}) == NO_GANG


def test_an_agent_that_only_starts_slowly_has_the_same_time() -> None:
    harness = JobHarness(manifest(startDeadline="2m")).start_job()
    harness.run(NORTH)
    harness.settle()
    pass_time(harness, 121)
    assert asks(harness) == [False, False]
    assert f"Silo {SOUTH}: its agent has not started yet." in (harness.condition("SilosReady") or "")[2]


def test_a_job_that_runs_writes_nothing_of_it() -> None:
    harness = JobHarness().running()
    assert gang(harness) is None
    assert harness.plan().settled
