"""What a silo without Kubernetes says and does about its part in a job."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from fedsilo.api.agent import SiloAgentStatus
from fedsilo.api.digest import spec_digest
from fedsilo.api.job import FederatedJobSpec
from fedsilo.api.observed import Object, condition
from fedsilo.api.silo import Silo
from fedsilo.institution.assess import PartState, assess
from fedsilo.institution.directory import SiloDirectory
from fedsilo.institution.processes import ended_state, running
from fedsilo.institution.silo_file import read_silo
from fedsilo.silo.agent.component import GUARD, TRAINER, ComponentState
from fedsilo.silo.budget_figures import SpentBudget
from fedsilo.silo.decision import read_decision
from fedsilo.wire import SigningKey
from tests.unit.institution.parts import HUB, KEY, SILO, record, write_silo

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
IMAGE = f"registry.example/trainer@sha256:{'a' * 64}"
BOTH_PARTS = frozenset({GUARD, TRAINER})
RUNS = {role: running(role) for role in (GUARD, TRAINER)}
IDLE_COMPONENTS = {role: ComponentState(role, stopped=True) for role in (GUARD, TRAINER)}


def silo_with(tmp_path: Path, **policy: Any) -> Silo:
    place = SiloDirectory(tmp_path)
    write_silo(place, policy)
    return read_silo(place, SILO, KEY.verify_key.to_text(), HUB)


def state_of(
    seen: Object, silo: Silo, processes: dict[str, ComponentState] | None = None, **options: Any
) -> PartState:
    spent = options.get("spent", 0.0)
    found = assess(
        seen,
        silo,
        processes or IDLE_COMPONENTS,
        None,
        KEY,
        options.get("now", NOW),
        lambda _: SpentBudget(spent),
    )
    SiloAgentStatus.model_validate(found.status)  # as the hub checks it
    return found


def statuses(state: PartState) -> dict[str, tuple[str, str]]:
    return {one["type"]: (one["status"], one["reason"]) for one in state.status["conditions"]}


def test_a_job_is_admitted_before_it_runs_and_the_decision_stays_as_it_was_signed(tmp_path: Path) -> None:
    silo = silo_with(tmp_path)
    waits = state_of(record(suspend=True), silo)
    assert (waits.status["phase"], waits.wanted) == ("Admitted", frozenset())
    assert statuses(waits) == {"Admitted": ("True", "Admitted"), "Ready": ("False", "Suspended")}
    assert "configuration" not in waits.status
    signed = read_decision(waits.status["decision"], KEY.verify_key.to_text())
    assert (signed.silo, signed.decision) == (SILO, "Admitted")

    later = NOW + timedelta(hours=1)
    starts = state_of(record(waits.status), silo, now=later)
    assert (starts.status["phase"], starts.wanted) == ("Starting", BOTH_PARTS)
    runs = state_of(record(starts.status), silo, RUNS, now=later)
    assert (runs.status["phase"], statuses(runs)["Ready"]) == ("Running", ("True", "Running"))
    assert runs.status["decision"] == waits.status["decision"]
    admitted = condition({"status": runs.status}, "Admitted")
    assert admitted is not None
    assert admitted["lastTransitionTime"] == "2026-01-02T03:04:05Z"
    ready = condition({"status": starts.status}, "Ready"), condition({"status": runs.status}, "Ready")
    times = [one["lastTransitionTime"] for one in ready if one is not None]
    assert times == ["2026-01-02T03:04:05Z", "2026-01-02T04:04:05Z"], (
        "when it came to run, not when it is said"
    )
    suspended = state_of(record(runs.status, suspend=True), silo, RUNS)
    assert (suspended.status["phase"], suspended.wanted) == ("Suspended", frozenset())


def test_a_policy_that_changes_stops_what_runs_and_lets_it_go_on_again(tmp_path: Path) -> None:
    runs = state_of(record(), silo_with(tmp_path), RUNS)
    refused = state_of(record(runs.status), silo_with(tmp_path, methods=["fedprox"]), RUNS)
    assert (refused.status["phase"], refused.wanted) == ("Refused", frozenset())
    assert statuses(refused)["Admitted"] == ("False", "PolicyRefused")
    again = state_of(record(refused.status), silo_with(tmp_path), IDLE_COMPONENTS)
    assert again.wanted == BOTH_PARTS


@pytest.mark.parametrize(
    ("allowed", "image", "phase"),
    [
        (None, IMAGE, "Admitted"),
        ([IMAGE], IMAGE, "Admitted"),
        ([IMAGE], None, "Admitted"),
        ([IMAGE], IMAGE.replace("a" * 64, "b" * 64), "Refused"),
        ([IMAGE], "registry.example/trainer:latest", "Refused"),
    ],
)
def test_what_is_installed_runs_in_place_of_an_image_that_the_policy_admits(
    tmp_path: Path, allowed: list[str] | None, image: str | None, phase: str
) -> None:
    silo = silo_with(tmp_path, trainerImages=allowed)
    found = state_of(record(suspend=True, image=image), silo).status
    assert found["phase"] == phase
    assert found["proposal"]["trainerImage"].startswith("installed/fedsilo:")
    assert found["proposal"]["guardImage"] == found["proposal"]["trainerImage"]


def test_a_person_is_asked_with_the_command_of_this_place(tmp_path: Path) -> None:
    found = state_of(record(), silo_with(tmp_path, manualApproval=True)).status
    assert found["phase"] == "ApprovalPending"
    assert "fedsilo silo approve --dir DIR" in found["message"]
    assert "kubectl" not in found["message"]


def test_the_ends_are_those_of_a_cluster_and_are_never_taken_back(tmp_path: Path) -> None:
    silo = silo_with(tmp_path)
    runs = state_of(record(), silo, RUNS).status
    done = {role: ended_state(role, 0, 0, False, 0.0) for role in (GUARD, TRAINER)}
    finished = state_of(record(runs), silo, done)
    assert (finished.status["phase"], statuses(finished)["Finished"]) == ("Finished", ("True", "Finished"))
    assert state_of(record(finished.status), silo_with(tmp_path), IDLE_COMPONENTS) == PartState(
        None, frozenset(), finished.status
    )
    # The trainer still writes its own model.
    assert state_of(record(runs), silo, done | {TRAINER: RUNS[TRAINER]}).wanted == {TRAINER}

    lost = {GUARD: RUNS[GUARD], TRAINER: ended_state(TRAINER, 3, 0, True, 0.0)}
    failed = state_of(record(runs), silo, lost)
    assert statuses(failed)["Failed"] == ("True", "DataInvalid")
    early = state_of(record(runs), silo, lost | {TRAINER: ended_state(TRAINER, 0, 0, True, 0.0)})
    assert "before the job was over" in early.status["message"]
    crashed = state_of(record(runs), silo, lost | {TRAINER: ended_state(TRAINER, -11, 7, True, 0.0)})
    assert statuses(crashed)["Failed"] == ("True", "BackoffLimitExceeded")
    # A guard stays, to report why there is no answer, as long as the job goes on.
    files = {"agent.json": "{}", "silo.json": "{}"}
    assert assess(record(failed.status), silo, IDLE_COMPONENTS, files, KEY, NOW).wanted == {GUARD}
    assert (
        assess(record(failed.status, suspend=True), silo, IDLE_COMPONENTS, files, KEY, NOW).wanted
        == frozenset()
    )


def test_nothing_runs_with_another_configuration_than_it_began_with(tmp_path: Path) -> None:
    silo = silo_with(tmp_path)
    runs = state_of(record(), silo, RUNS).status
    changed = {"agent.json": "{}", "silo.json": "{}"}
    found = assess(record(runs), silo, RUNS, changed, KEY, NOW)
    assert (found.wanted, statuses(found)["Admitted"]) == (frozenset(), ("False", "TrustBroken"))


def test_a_part_for_another_key_or_of_another_version_starts_nothing(tmp_path: Path) -> None:
    silo = silo_with(tmp_path)
    foreign = SigningKey.from_seed(bytes(32)).verify_key.to_text()
    assert statuses(state_of(record(publicKey=foreign), silo))["Admitted"] == ("False", "TrustBroken")
    later = record()
    later["spec"]["job"]["spec"]["fieldOfALaterVersion"] = 1
    found = state_of(later, silo)
    assert (found.wanted, statuses(found)["Admitted"]) == (frozenset(), ("Unknown", "Unreadable"))
    assert "fieldOfALaterVersion" in found.status["message"]


def test_a_job_for_which_the_budget_has_no_room_is_refused_until_it_has_begun(tmp_path: Path) -> None:
    silo = silo_with(tmp_path, privacyBudget=[{"dataset": "digits", "epsilon": 4.0, "delta": 1e-3}])
    seen = record(suspend=True)
    job = seen["spec"]["job"]
    job["spec"].setdefault("privacy", {})["differentialPrivacy"] = {
        "unit": "example",
        "epsilon": 3.0,
        "delta": 1e-3,
    }
    job["specDigest"] = spec_digest(FederatedJobSpec.model_validate(job["spec"]))
    assert statuses(state_of(seen, silo, spent=1.0))["Admitted"] == ("True", "Admitted")
    refused = state_of(seen, silo, spent=1.5)
    assert statuses(refused)["Admitted"] == ("False", "PolicyRefused")
    assert "of which 1.5 is spent, and the job wants 3" in str(refused.status["message"])
