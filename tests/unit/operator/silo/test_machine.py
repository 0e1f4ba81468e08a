"""Whatever happens to an agent, in whatever order: it settles, its end stays, and no pod exists that should not."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from fedsilo.api.observed import Object, holds
from fedsilo_operator.diagnosis.pods import running
from fedsilo_operator.objects import CLAIM, CONFIG_MAP, JOB, NETWORK_POLICY, POD, SILO_KIND, ref_of
from fedsilo_operator.workloads.agent import GUARD, TRAINER
from tests.unit.operator.silo.harness import RUNNING, SILO_REF, World, agent, ended_status, silo

COMPONENTS = st.sampled_from((TRAINER, GUARD))
NOT_RUNNING: list[dict[str, Any]] = [
    {"phase": "Pending"},
    {
        "phase": "Pending",
        "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}],
    },
    {
        "phase": "Pending",
        "containerStatuses": [{"ready": False, "state": {"waiting": {"reason": "ImagePullBackOff"}}}],
    },
    {**RUNNING, "conditions": []},
]
POLICIES: list[dict[str, Any]] = [
    {},
    {"methods": ["creff"]},
    {"manualApproval": True},
    {"maxRounds": 1},
    {"notAfter": "2026-03-01T12:05:00Z"},
]


class Agent(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = World(agent(suspend=True), silo())
        self.silo = self.world.objects[SILO_KIND][SILO_REF]
        self.reconciled = False
        self.ended: dict[str, Any] | None = None

    # People and the job controller.

    @rule(value=st.booleans())
    def suspend(self, value: bool) -> None:
        if self.world.agent["spec"]["suspend"] != value:
            self.world.suspend(value)

    @rule(policy=st.sampled_from(POLICIES))
    def decide(self, policy: dict[str, Any]) -> None:
        self.silo["spec"]["policy"] = copy.deepcopy(policy)

    @rule(there=st.booleans())
    def silo_comes_and_goes(self, there: bool) -> None:
        self.world.objects[SILO_KIND] = {SILO_REF: self.silo} if there else {}

    @rule(data=st.data())
    def delete_a_child(self, data: st.DataObject) -> None:
        kinds = (CLAIM, CONFIG_MAP, NETWORK_POLICY, JOB, POD)
        children = [(kind, ref) for kind in kinds for ref in self.world.objects.get(kind, {})]
        assume(children)
        self.world.remove(*data.draw(st.sampled_from(children)))

    # Job controller and kubelet.

    @rule(component=COMPONENTS)
    def make_pod(self, component: str) -> None:
        job = self._active_job(component)
        assume(
            not [
                pod
                for pod in self.world.pods_of(job)
                if pod["status"]["phase"] not in ("Succeeded", "Failed")
            ]
        )
        self.world.pod(component, phase="Pending")

    @rule(component=COMPONENTS, status=st.sampled_from([RUNNING, *NOT_RUNNING]))
    def pod_changes(self, component: str, status: dict[str, Any]) -> None:
        self._pod(component)["status"] = copy.deepcopy(status)

    @rule(component=COMPONENTS, code=st.sampled_from((0, 1, 3, 137)))
    def pod_ends(self, component: str, code: int) -> None:
        self._pod(component)["status"] = ended_status(
            code, '{"reason": "DataInvalid", "message": "bad"}' if code == 3 else ""
        )
        if code in (0, 3):
            self.world.end(component, "Complete" if code == 0 else "Failed", reason="PodFailurePolicy")

    @rule()
    def pods_of_suspended_jobs_go(self) -> None:
        for component in (TRAINER, GUARD):
            job = self.world.job(component)
            for pod in self.world.pods_of(job) if job is not None and job["spec"].get("suspend") else ():
                del self.world.objects[POD][ref_of(pod)]

    @rule(seconds=st.sampled_from((1, 20, 400)))
    def time_passes(self, seconds: float) -> None:
        self.world.pass_time(seconds)

    # The controller.

    @rule()
    def reconcile(self) -> None:
        before = copy.deepcopy((self.world.agent.get("status") or {}).get("conditions") or [])
        for _ in range(3):
            if self.world.reconcile().settled:
                break
        assert self.world.plan().settled
        self.reconciled = True
        self._transitions(before)
        self._phase()
        self._end()

    def _transitions(self, before: list[dict[str, Any]]) -> None:
        """The time of a transition is that of a change of the status, and of nothing else."""
        earlier = {found["type"]: found for found in before}
        for found in self.world.agent["status"]["conditions"]:
            known = earlier.get(found["type"])
            if known is not None and known["status"] == found["status"]:
                assert known["lastTransitionTime"] == found["lastTransitionTime"]

    def _phase(self) -> None:
        conditions, phase = self.world.conditions, self.world.phase
        assert (phase == "Running") == (conditions["Ready"][0] == "True")
        assert (phase == "Finished") == ("Finished" in conditions)
        assert (phase == "Failed") == ("Failed" in conditions)
        if phase in ("Admitted", "Starting", "Running", "Suspended"):
            assert conditions["Admitted"] == ("True", "Admitted")
        if phase in ("Refused", "ApprovalPending", "Pending"):
            assert conditions["Admitted"][0] != "True"
        assert not ("Finished" in conditions and "Failed" in conditions)

    def _end(self) -> None:
        """What is over stays over, to the letter, but for the generation that was looked at."""
        found = {
            condition["type"]: {key: condition[key] for key in condition if key != "observedGeneration"}
            for condition in self.world.agent["status"]["conditions"]
        }
        if self.ended is not None:
            assert found == self.ended
        elif holds(self.world.agent, "Finished") or holds(self.world.agent, "Failed"):
            self.ended = found

    @invariant()
    def no_job_is_active_that_the_silo_did_not_admit(self) -> None:
        """Right after a reconcile; what people change since then is for the next one."""
        if not self.reconciled:
            return
        self.reconciled = False
        for component in (TRAINER, GUARD):
            job = self.world.job(component)
            if job is None or job["spec"].get("suspend") or holds(job, "Complete") or holds(job, "Failed"):
                continue
            if component == GUARD and self.ended is not None:
                continue
            assert self.world.conditions["Admitted"][0] == "True"
            assert not self.world.agent["spec"]["suspend"]

    @precondition(lambda self: self.reconciled)
    @invariant()
    def running_means_that_pods_run(self) -> None:
        if self.world.phase == "Running":
            for component in (TRAINER, GUARD):
                job = self.world.job(component)
                assert job is not None
                assert running(self.world.pods_of(job)) or holds(job, "Complete")

    def _active_job(self, component: str) -> Object:
        job = self.world.job(component)
        assume(job is not None and not job["spec"].get("suspend"))
        assert job is not None
        assume(not holds(job, "Complete") and not holds(job, "Failed"))
        return job

    def _pod(self, component: str) -> Object:
        job = self._active_job(component)
        pods = [
            pod for pod in self.world.pods_of(job) if pod["status"]["phase"] not in ("Succeeded", "Failed")
        ]
        assume(pods)
        return pods[0]


TestAgent = Agent.TestCase
TestAgent.settings = settings(
    max_examples=40, stateful_step_count=40, suppress_health_check=[HealthCheck.filter_too_much]
)


@pytest.mark.thorough
def test_many_histories_of_an_agent() -> None:
    run_state_machine_as_test(Agent, settings=settings(TestAgent.settings, max_examples=80))
