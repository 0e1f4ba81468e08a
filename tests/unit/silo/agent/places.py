"""One silo and one part in a job, on a cluster and on a machine, where the same things happen to both."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any, Protocol

from fedsilo.api.agent import SiloAgentStatus
from fedsilo.api.observed import Object, status_of
from fedsilo.api.silo import Silo
from fedsilo.hub.reports import reported_status
from fedsilo.institution.assess import PartState, assess
from fedsilo.institution.processes import ended_state as ended_process
from fedsilo.institution.processes import running
from fedsilo.silo.agent.component import GUARD, TRAINER, ComponentState
from fedsilo.silo.configuration import configuration
from fedsilo.silo.installed import installed_image
from fedsilo_operator.objects import CONFIG_MAP, POD, SILO_KIND, ref_of
from fedsilo_operator.workloads.suspension import is_suspended
from tests.unit.operator.silo.harness import (
    AGENT_REF,
    SETTINGS,
    SIGNING,
    SILO_REF,
    START,
    World,
    agent,
    ended_status,
    silo,
)

CHANGED_CONFIGURATION = {"agent.json": "{}", "silo.json": "{}"}
"""A configuration with which nobody began."""


class Place(Protocol):
    """A place in which a silo's part in a job runs, or does not."""

    def settle(self) -> None:
        """Whatever follows from what has happened is done."""

    def status(self) -> Object:
        """What the hub is told, and the fingerprint of what guard and trainer began with."""

    def runs(self) -> set[str]:
        """Which of guard and trainer are to run, and have not ended."""

    def suspend(self, value: bool) -> None:
        """The job wants nothing to run, or does."""

    def policy(self, rules: Mapping[str, Any]) -> None:
        """The institution writes another policy."""

    def understand(self, value: bool) -> None:
        """Another version has written the agent, or this one."""

    def change_files(self) -> None:
        """What guard and trainer read is not what they began with."""

    def begin(self) -> None:
        """Whatever is to run does."""

    def stop(self) -> None:
        """Whatever is not to run has ended."""

    def end(self, name: str, code: int) -> None:
        """Guard or trainer ends with a code, for good."""

    def wait(self, seconds: float) -> None:
        """Let time pass in the place."""


class Cluster:
    """Jobs and pods, and the operator, whose images are what is installed."""

    def __init__(self) -> None:
        self.world = World(agent(suspend=True), silo())
        self.settings = replace(SETTINGS, trainer_image=installed_image(), guard_image=installed_image())

    def settle(self) -> None:
        for _ in range(4):
            if self.world.reconcile(self.settings).settled:
                return
        raise AssertionError("it does not settle")

    def status(self) -> Object:
        return common_status(status_of(self.world.agent))

    def runs(self) -> set[str]:
        jobs = {name: self.world.job(name) for name in (TRAINER, GUARD)}
        return {
            name
            for name, job in jobs.items()
            if job is not None and not is_suspended(job) and not status_of(job).get("conditions")
        }

    def suspend(self, value: bool) -> None:
        self.world.suspend(value)

    def policy(self, rules: Mapping[str, Any]) -> None:
        self.world.objects[SILO_KIND][SILO_REF]["spec"]["policy"] = dict(rules)

    def understand(self, value: bool) -> None:
        write_another_version(self.world.agent, value)

    def change_files(self) -> None:
        self.world.objects[CONFIG_MAP][AGENT_REF]["data"] = dict(CHANGED_CONFIGURATION)

    def begin(self) -> None:
        self.world.run_all()

    def stop(self) -> None:
        for name in (TRAINER, GUARD):
            job = self.world.job(name)
            for pod in self.world.pods_of(job) if job is not None and is_suspended(job) else ():
                del self.world.objects[POD][ref_of(pod)]

    def end(self, name: str, code: int) -> None:
        for pod in self.world.pods_of(self.world.job(name) or {}):
            pod["status"] = ended_status(code)
        if code == 0:
            self.world.end(name, "Complete")
        else:
            retried = "BackoffLimitExceeded" if code == 1 else "PodFailurePolicy"
            self.world.end(name, "Failed", reason=retried, message="no more")

    def wait(self, seconds: float) -> None:
        self.world.pass_time(seconds)


class Machine:
    """Processes and files of a silo on a machine."""

    def __init__(self) -> None:
        made = agent(suspend=True)
        metadata = {name: made["metadata"][name] for name in ("name", "namespace", "uid")}
        self.record: Object = {"metadata": metadata, "spec": made["spec"], "status": {}}
        self.silo = silo()
        self.files: Mapping[str, str] | None = None
        self.processes = {role: ComponentState(role, stopped=True) for role in (GUARD, TRAINER)}
        self.wanted: frozenset[str] = frozenset()
        self.now = START

    def settle(self) -> None:
        found = self._assess()
        if found.wanted and self.files is None:
            assert found.agent is not None
            self.files = configuration(found.agent, Silo.model_validate(self.silo))
        self.record["status"] = found.status
        self.wanted = found.wanted
        assert self._assess().status == found.status, "it settles"

    def _assess(self) -> PartState:
        typed = Silo.model_validate(self.silo)
        return assess(self.record, typed, self.processes, self.files, SIGNING, self.now)

    def status(self) -> Object:
        return common_status(status_of(self.record))

    def runs(self) -> set[str]:
        return set(self.wanted)

    def suspend(self, value: bool) -> None:
        self.record["spec"]["suspend"] = value

    def policy(self, rules: Mapping[str, Any]) -> None:
        self.silo["spec"]["policy"] = dict(rules)

    def understand(self, value: bool) -> None:
        write_another_version(self.record, value)

    def change_files(self) -> None:
        self.files = dict(CHANGED_CONFIGURATION)

    def begin(self) -> None:
        for name in self.wanted:
            self.processes[name] = running(name)

    def stop(self) -> None:
        for name, found in self.processes.items():
            if found.alive and name not in self.wanted:
                self.processes[name] = ComponentState(name, stopped=True)

    def end(self, name: str, code: int) -> None:
        # The guard tells the trainer that the job is over, right before it ends itself.
        early = name == TRAINER and self.processes[GUARD].outcome is None
        self.processes[name] = ended_process(name, code, 3 if code == 1 else 0, early, 0.0)

    def wait(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)
        for name, found in self.processes.items():
            if found.done_seconds is not None:
                self.processes[name] = replace(found, done_seconds=found.done_seconds + seconds)


PLACES: tuple[Callable[[], Place], ...] = (Cluster, Machine)


def write_another_version(found: Object, understood: bool) -> None:
    if understood:
        del found["spec"]["telepathy"]
    else:
        found["spec"]["telepathy"] = True


def common_status(status: Mapping[str, Any]) -> Object:
    """What of a status is of no place, but for the one word with which messages call what runs there."""
    SiloAgentStatus.model_validate(status)
    found = {**reported_status(status), "configuration": status.get("configuration")}
    for stated in (found, *found["conditions"]):
        stated["message"] = str(stated["message"]).replace("pods", "processes")
    return copy.deepcopy(found)


def without_words(status: Object) -> Object:
    """A status without what a place says in words of its own."""
    found = {name: value for name, value in status.items() if name != "message"}
    stated = [
        {name: value for name, value in one.items() if name != "message"} for one in status["conditions"]
    ]
    return {**found, "conditions": stated, "decision": _unsigned_decision(status.get("decision"))}


def _unsigned_decision(decision: Object | None) -> Object | None:
    if decision is None:
        return None
    found = {name: value for name, value in decision.items() if name not in ("signature", "objections")}
    return {**found, "reasons": [one["reason"] for one in decision["objections"]]}
