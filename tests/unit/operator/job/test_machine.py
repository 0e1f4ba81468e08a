"""Whatever happens in whatever order: conditions follow facts, ends are ends, and every state settles."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from fedsilo.api.observed import Object
from fedsilo_operator.objects import (
    CLAIM,
    CONFIG_MAP,
    FEDERATED_JOB,
    JOB,
    NETWORK_POLICY,
    POD,
    ROLE,
    SERVICE,
    SILO_AGENT,
    Kind,
    ref_of,
)
from fedsilo_operator.plan import DeleteAction
from tests.unit.operator.job.harness import JobHarness
from tests.unit.operator.job.objects import EAST, NORTH, SOUTH, manifest, silo

SILOS = (NORTH, SOUTH, EAST)
LABELS = {"study": "lung"}
PHASES = {
    "Complete": lambda held: "Complete" in held,
    "Failed": lambda held: "Failed" in held,
    "Suspended": lambda held: "Suspended" in held and not held & {"Complete", "Failed"},
    "Running": lambda held: "Running" in held and not held & {"Suspended", "Complete", "Failed"},
    "Starting": lambda held: "Admitted" in held and not held & {"Running", "Suspended", "Complete", "Failed"},
    "Admitting": lambda held: "Admitted" not in held,
    "Pending": lambda held: "Accepted" not in held and "Admitted" not in held,
}


class Job(RuleBasedStateMachine):
    """A job under a selector, and everything that can happen to it."""

    def __init__(self) -> None:
        super().__init__()
        job = manifest(silos={"selector": {"matchLabels": LABELS}}, participation={"minSilos": 2})
        self.harness = JobHarness(job, [silo(ref, labels=LABELS) for ref in SILOS])
        self.last: Object | None = None
        self.end: Any = None
        self.start: tuple[str, list[str]] | None = None

    @property
    def agents(self) -> list[Any]:
        names = self.harness.agents()
        return [ref for ref in SILOS if ref.name in names]

    @rule(ref=st.sampled_from(SILOS), report=st.sampled_from(("admit", "refuse", "run", "run", "fail")))
    def an_agent_reports(self, ref: Any, report: str) -> None:
        if ref in self.agents:
            getattr(self.harness, report)(ref)

    @rule()
    def all_admit(self) -> None:
        self.harness.admit(*self.agents)

    @rule()
    def all_run(self) -> None:
        self.harness.run(*self.agents)

    @precondition(lambda self: self.harness.cluster.objects(JOB))
    @rule(phase=st.sampled_from(("Pending", "Running", "Running", "Failed")))
    def the_aggregator_s_pod_changes(self, phase: str) -> None:
        states: dict[str, Any] = {"Running": {"running": {}}, "Failed": {"terminated": {"exitCode": 1}}}
        self.harness.pod(phase, **states.get(phase, {}))

    @precondition(lambda self: self.harness.cluster.objects(JOB))
    @rule(end=st.sampled_from((("Complete", ""), ("Failed", "BackoffLimitExceeded"))))
    def the_aggregator_ends(self, end: tuple[str, str]) -> None:
        self.harness.end(*end)

    @rule(suspend=st.booleans())
    def a_person_suspends(self, suspend: bool) -> None:
        self.harness.change(suspend=suspend)

    @rule(ref=st.sampled_from(SILOS), key=st.booleans(), labelled=st.booleans())
    def a_silo_changes(self, ref: Any, key: bool, labelled: bool) -> None:
        self.harness.cluster.put(silo(ref, key=key, labels=LABELS if labelled else {}))

    @rule(kind=st.sampled_from((CONFIG_MAP, JOB, NETWORK_POLICY, POD, ROLE, SERVICE, SILO_AGENT, CLAIM)))
    def somebody_deletes(self, kind: Kind) -> None:
        for obj in self.harness.cluster.objects(kind)[:1]:
            self.harness.cluster.remove(kind, ref_of(obj))
        self.harness.cluster.collect_garbage()

    @rule(steps=st.integers(1, 2))
    def the_operator_is_half_way(self, steps: int) -> None:
        for _ in range(steps):
            self.harness.step()

    @rule()
    def the_operator_settles(self) -> None:
        self.harness.settle()
        before = self.harness.job["status"]
        assert self.harness.step().settled
        assert self.harness.job["status"] == before

    @invariant()
    def phase_and_conditions_agree(self) -> None:
        status = self.harness.job.get("status")
        if status is None:
            return
        held = {item["type"] for item in status["conditions"] if item["status"] == "True"}
        assert PHASES[status["phase"]](held), (status["phase"], held)
        assert not {"Complete", "Failed"} <= held
        assert ("completionTime" in status) == bool(held & {"Complete", "Failed"})

    @invariant()
    def an_end_is_an_end(self) -> None:
        status = self.harness.job.get("status", {})
        if "completionTime" in status:
            said = (status["phase"], status["completionTime"], status["conditions"])
            assert self.end in (None, said)
            self.end = said

    @invariant()
    def the_start_is_never_taken_back(self) -> None:
        status = self.harness.job.get("status", {})
        if "startTime" in status:
            taking_part = sorted(e["name"] for e in status.get("silos", ()) if e["phase"] != "LeftOut")
            assert self.start in (None, (status["startTime"], taking_part))
            self.start = status["startTime"], taking_part
            admitted = self.harness.condition("Admitted")
            assert admitted is not None and admitted[0] == "True"

    @rule()
    def without_a_change_no_condition_changes(self) -> None:
        """Planned twice over the same facts, the same is said; the time alone changes nothing."""
        assert self.harness.plan() == self.harness.plan()

    @invariant()
    def the_job_itself_is_never_deleted(self) -> None:
        assert not any(
            isinstance(action, DeleteAction) and action.kind == FEDERATED_JOB
            for action in self.harness.plan().actions
        )


TestJob = Job.TestCase
TestJob.settings = settings(max_examples=30, stateful_step_count=30)


@pytest.mark.thorough
def test_many_histories_of_a_job() -> None:
    run_state_machine_as_test(Job, settings=settings(max_examples=90, stateful_step_count=30))
