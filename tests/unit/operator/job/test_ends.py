"""How a job ends, and what stays; suspension, deletion, and the time to live."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from fedsilo_operator.diagnosis.patience import PATIENCE, PULL_PATIENCE
from fedsilo_operator.job.assess import JOB_FAULTS, VERDICT_SECONDS
from fedsilo_operator.job.reconcile import AGENTS_END_SECONDS
from fedsilo_operator.objects import (
    CLAIM,
    FEDERATED_JOB,
    JOB,
    POD,
    SECRET,
    SERVICE,
    SERVICE_ACCOUNT,
    SILO_AGENT,
    Ref,
    ref_of,
)
from fedsilo_operator.plan import CreateAction
from tests.unit.operator.job.harness import JobHarness, complete
from tests.unit.operator.job.objects import JOB_REF, NORTH, SOUTH, manifest

AGGREGATOR = Ref(JOB_REF.namespace, "digits-aggregator")


def termination_log(reason: str, message: str) -> dict[str, object]:
    """How a process ends that has left its own words."""
    return {"exitCode": 4, "message": json.dumps({"reason": reason, "message": message})}


def suspended_agents(harness: JobHarness) -> list[bool]:
    return [agent["spec"]["suspend"] for agent in harness.cluster.objects(SILO_AGENT)]


def test_a_complete_job_says_where_the_model_is_and_frees_the_gpus() -> None:
    harness = complete(JobHarness().running())
    assert harness.phase() == "Complete"
    claim = harness.cluster.objects(CLAIM)[0]["metadata"]["name"]
    assert harness.condition("Complete") == (
        "True",
        "Complete",
        f"The model is in PersistentVolumeClaim {claim}.",
    )
    assert harness.condition("Running") == ("False", "Finished", "The job is over.")
    assert harness.events()[-1] == ("Normal", "Complete")
    assert harness.batch()["spec"].get("suspend", False) is False
    assert suspended_agents(harness) == [False, False], (
        "they end by themselves, for the aggregator has told them"
    )
    assert 0 < (harness.plan().requeue_after or 0) <= AGENTS_END_SECONDS
    harness.now += timedelta(seconds=AGENTS_END_SECONDS)
    harness.settle()
    assert suspended_agents(harness) == [True, True]
    assert harness.plan().requeue_after is None


def test_agents_of_a_complete_job_that_are_finished_are_left_alone() -> None:
    harness = complete(JobHarness().running())
    harness.finish(NORTH)
    harness.now += timedelta(seconds=AGENTS_END_SECONDS)
    harness.settle()
    assert suspended_agents(harness) == [False, True]
    assert harness.plan().settled
    assert harness.plan().requeue_after is None


def test_a_complete_job_waits_for_its_agents_no_longer_than_it_lives() -> None:
    harness = complete(JobHarness(manifest(ttlSecondsAfterFinished=9)).running())
    assert 0 < (harness.plan().requeue_after or 0) <= 9


def test_a_failed_job_has_the_aggregator_s_own_message() -> None:
    harness = JobHarness().running()
    harness.pod(
        "Failed",
        terminated=termination_log("DeadlineExceeded", "1 of 2 silos answered; still awaited: b/south"),
    )
    harness.end("Failed", "PodFailurePolicy", failed=1)
    harness.settle()
    status, reason, message = harness.condition("Failed") or ("", "", "")
    assert (status, reason) == ("True", "DeadlineExceeded")
    assert "1 of 2 silos answered; still awaited: b/south" in message
    assert harness.events()[-1] == ("Warning", "DeadlineExceeded")
    assert suspended_agents(harness) == [True, True], "nobody tells them that a job has failed"


def test_tries_that_are_used_up_are_reported_with_the_last_failure() -> None:
    harness = JobHarness().running()
    harness.pod("Failed", terminated={"exitCode": 137, "reason": "OOMKilled"})
    harness.settle()
    assert (harness.condition("Running") or ("", "", ""))[1] == "OutOfMemory"
    for pod in harness.cluster.objects(POD):
        harness.cluster.remove(POD, ref_of(pod))
    harness.end("Failed", "BackoffLimitExceeded", failed=7)
    harness.settle()
    _, reason, message = harness.condition("Failed") or ("", "", "")
    assert reason == "BackoffLimitExceeded"
    assert "Before that: The aggregator used more memory than it may and was killed." in message


def test_a_lost_quorum_fails_the_job_at_once_and_names_the_silos() -> None:
    harness = JobHarness().running()
    harness.fail(SOUTH, "The trainer ended with exit code 3 (DataInvalid): scans/train.npz has no labels.")
    harness.settle()
    assert harness.condition("Failed") == (
        "True",
        "QuorumLost",
        "1 of 2 silos left, the quorum is 2. Silo silo-south/south failed: The trainer ended with exit code 3"
        " (DataInvalid): scans/train.npz has no labels.",
    )
    assert harness.batch()["spec"]["suspend"] is True


FROZEN_NOTHING = "spec.model.parameters.frozen[0]: 'nothing.*': matches no tensor of the model"


def failed_by_the_job(harness: JobHarness, reason: str = "ManifestInvalid") -> JobHarness:
    """Both trainers of a job that has just started end with what is no fault of their silos."""
    harness.start_job()
    for ref in (NORTH, SOUTH):
        harness.fail(ref, f"The trainer ended with exit code 2 ({reason}); its log says more.", reason)
    harness.settle()
    return harness


@pytest.mark.parametrize("reason", sorted(JOB_FAULTS))
def test_the_aggregator_says_what_is_wrong_with_a_job_that_no_trainer_can_run(reason: str) -> None:
    """The aggregator has no data, and whatever the trainers have written stays in their silos."""
    harness = failed_by_the_job(JobHarness(), reason)
    assert harness.condition("Failed") is None
    assert 0 < (harness.plan().requeue_after or 0) <= VERDICT_SECONDS
    harness.pod("Failed", terminated=termination_log(reason, FROZEN_NOTHING) | {"exitCode": 2})
    harness.end("Failed", "PodFailurePolicy")
    harness.settle()
    status, found, message = harness.condition("Failed") or ("", "", "")
    assert (status, found) == ("True", reason)
    assert message == f"The aggregator ended with exit code 2 ({reason}): {FROZEN_NOTHING}."
    assert suspended_agents(harness) == [True, True]


def test_an_aggregator_that_says_nothing_is_not_waited_for_long() -> None:
    harness = failed_by_the_job(JobHarness())
    harness.now += timedelta(seconds=VERDICT_SECONDS)
    harness.settle()
    status, reason, message = harness.condition("Failed") or ("", "", "")
    assert (status, reason) == ("True", "QuorumLost")
    assert "its log says more" in message


def test_data_that_cannot_be_read_are_nothing_that_the_aggregator_knows_of() -> None:
    harness = JobHarness().start_job()
    harness.fail(NORTH)
    harness.settle()
    assert (harness.condition("Failed") or ("", ""))[1] == "QuorumLost"


def test_a_job_goes_on_without_a_silo_that_the_quorum_does_not_need() -> None:
    harness = JobHarness(manifest(participation={"minSilos": 1})).running()
    harness.fail(SOUTH)
    harness.settle()
    assert harness.phase() == "Running"
    assert harness.condition("SilosReady") == (
        "False",
        "SiloFailed",
        "Silo silo-south/south failed: The trainer ended with exit code 3.",
    )
    assert complete(harness).phase() == "Complete"


def test_an_agent_that_fails_before_the_aggregator_starts_is_not_waited_for() -> None:
    harness = JobHarness(manifest(participation={"minSilos": 1})).start_job()
    harness.fail(SOUTH)
    harness.run(NORTH)
    harness.settle()
    assert harness.cluster.objects(JOB)


def test_an_image_name_that_is_none_fails_the_job() -> None:
    harness = JobHarness().start_job()
    harness.run(NORTH, SOUTH)
    harness.settle()
    harness.pod("Pending", waiting={"reason": "InvalidImageName"})
    harness.settle()
    assert harness.phase() == "Failed"
    assert (harness.condition("Failed") or ("", "", ""))[1] == "ImageNotFound"
    assert harness.batch()["spec"]["suspend"] is True


def test_what_hinders_the_aggregator_is_reported_and_checked_again() -> None:
    harness = JobHarness().start_job()
    harness.run(NORTH, SOUTH)
    harness.settle()
    harness.pod("Pending", waiting={"reason": "ImagePullBackOff", "message": "dial tcp: i/o timeout"})
    harness.now += PULL_PATIENCE
    harness.settle()
    status, reason, message = harness.condition("Running") or ("", "", "")
    assert (status, reason) == ("False", "ImageNotFound")
    assert "spec.aggregator.image" in message
    assert harness.events()[-1] == ("Warning", "ImageNotFound")
    assert (harness.plan().requeue_after or 0) > 0


def test_a_secret_that_the_pod_misses_is_made_again() -> None:
    harness = JobHarness().start_job()
    harness.run(NORTH, SOUTH)
    harness.settle()
    secret = harness.cluster.objects(SECRET)[0]
    harness.cluster.remove(SECRET, ref_of(secret))
    pod = harness.pod("Pending", waiting={"reason": "ContainerCreating"})
    harness.settle()
    assert not harness.cluster.objects(SECRET), "nobody says yet that it is missing"
    text = f'MountVolume.SetUp failed for volume "keys" : secret "{ref_of(secret).name}" not found'
    harness.warn(pod, "FailedMount", text)
    harness.now += PATIENCE
    plan = harness.step()
    assert [type(action) for action in plan.actions] == [CreateAction]
    assert harness.cluster.objects(SECRET)[0]["data"] == secret["data"]


def test_suspension_stops_the_pods_and_resuming_waits_for_the_agents_again() -> None:
    harness = JobHarness().running()
    harness.change(suspend=True)
    harness.settle()
    assert harness.phase() == "Suspended"
    assert harness.batch()["spec"]["suspend"] is True
    assert suspended_agents(harness) == [True, True]
    harness.cluster.remove(POD, ref_of(harness.cluster.objects(POD)[0]))
    harness.change(suspend=False)
    for ref in (NORTH, SOUTH):
        harness.say(
            ref, "Suspended", Admitted=("True", "Admitted", ""), Ready=("False", "Suspended", "No pods.")
        )
    harness.settle()
    assert suspended_agents(harness) == [False, False]
    assert harness.batch()["spec"]["suspend"] is True
    harness.run(NORTH, SOUTH)
    harness.settle()
    assert harness.batch()["spec"]["suspend"] is False
    assert [reason for _, reason in harness.events()][-2:] == ["Suspended", "Resumed"]
    assert harness.condition("Admitted") == ("True", "Admitted", "2 silos admitted the job.")


def test_a_pod_whose_account_was_made_anew_is_replaced() -> None:
    """Its token is of the account that is gone."""
    harness = JobHarness().running()
    harness.cluster.remove(SERVICE_ACCOUNT, AGGREGATOR)
    harness.step()
    assert harness.cluster.peek(SERVICE_ACCOUNT, AGGREGATOR)
    harness.settle()
    assert harness.batch()["spec"]["suspend"] is True
    harness.pod("Failed", terminated={"exitCode": 143})
    harness.settle()
    assert harness.batch()["spec"]["suspend"] is False
    harness.pod("Running", running={})
    harness.settle()
    assert harness.batch()["spec"]["suspend"] is False
    assert harness.phase() == "Running"


def test_nothing_takes_an_end_back() -> None:
    harness = complete(JobHarness().running())
    before = harness.job["status"]
    harness.fail(NORTH)
    harness.cluster.remove(JOB, AGGREGATOR)
    harness.cluster.remove(SERVICE, AGGREGATOR)
    harness.change(suspend=True)
    harness.settle()
    after = harness.job["status"]
    assert after["conditions"] == before["conditions"]
    assert after["completionTime"] == before["completionTime"]
    assert after["phase"] == "Complete"
    assert not harness.cluster.objects(JOB), "nothing of a job that is over is made again"
    assert after["silos"][0]["phase"] == "Failed", "what an agent says is still told"


@pytest.mark.parametrize("lifetime", [0, 3600])
def test_the_time_to_live_begins_at_the_end_and_spares_the_model(lifetime: int) -> None:
    harness = complete(JobHarness(manifest(ttlSecondsAfterFinished=lifetime)).running()) if lifetime else None
    if harness is None:
        harness = JobHarness(manifest(ttlSecondsAfterFinished=0)).running()
        harness.pod("Succeeded", terminated={"exitCode": 0})
        harness.end("Complete")
        harness.step()
    assert harness.plan().requeue_after is None or 0 < (harness.plan().requeue_after or 0) <= lifetime
    harness.now += timedelta(seconds=lifetime)
    for _ in range(5):
        harness.step()
    assert not harness.cluster.objects(FEDERATED_JOB)
    assert not harness.cluster.objects(SILO_AGENT)
    harness.cluster.collect_garbage()
    assert harness.cluster.objects(CLAIM)
    assert not harness.cluster.objects(SERVICE)


def test_a_deleted_job_takes_its_agents_first() -> None:
    harness = JobHarness().running()
    harness.cluster.remove(FEDERATED_JOB, JOB_REF)
    plan = harness.step()
    assert {action.kind for action in plan.actions if hasattr(action, "kind")} == {SILO_AGENT}
    assert harness.phase() == "Terminating"
    harness.step()
    assert not harness.cluster.objects(FEDERATED_JOB)
    assert not harness.cluster.objects(SILO_AGENT)


def test_a_job_that_never_started_goes_too() -> None:
    harness = JobHarness(manifest(training={"rounds": 0}))
    harness.settle()
    harness.cluster.remove(FEDERATED_JOB, JOB_REF)
    assert not harness.cluster.objects(FEDERATED_JOB)
    harness = JobHarness(silos=[])
    harness.settle()
    harness.cluster.remove(FEDERATED_JOB, JOB_REF)
    harness.settle()
    assert not harness.cluster.objects(FEDERATED_JOB)


def test_a_namespace_that_is_gone_holds_no_job_up() -> None:
    harness = JobHarness().running()
    harness.cluster.remove_namespace(NORTH.namespace)
    harness.cluster.remove(FEDERATED_JOB, JOB_REF)
    harness.settle()
    assert not harness.cluster.objects(FEDERATED_JOB)


def test_a_complete_job_says_first_which_silos_it_lost() -> None:
    harness = JobHarness(manifest(participation={"minSilos": 1})).running()
    states = [{"name": "north", "state": "Finished"}, {"name": "south", "state": "Failed"}]
    status = harness.job["status"] | {"silos": states}
    harness.cluster.put(harness.job | {"status": status}, "fedsilo-operator")
    _, _, message = complete(harness).condition("Complete") or ("", "", "")
    assert message.startswith("The job ended with 1 of 2 silos, without south. The model is in ")
