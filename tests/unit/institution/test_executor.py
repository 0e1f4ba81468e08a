"""All parts of a silo: what is on the disk, what is started and ended, and what a crash at any step leaves."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from fedsilo.api.agent import Member
from fedsilo.api.digest import spec_digest
from fedsilo.api.job import FederatedJobSpec
from fedsilo.api.observed import Object
from fedsilo.api.proposal import members_digest
from fedsilo.cli.main import main
from fedsilo.files import durable
from fedsilo.hub.client import HubAgent
from fedsilo.hub.contact import Contact
from fedsilo.institution import executor as module
from fedsilo.institution.directory import SiloDirectory
from fedsilo.institution.executor import Executor
from fedsilo.institution.metrics import exposition
from fedsilo.institution.silo_file import WatchedSilo
from fedsilo.local.child_processes import ChildProcess
from fedsilo.privacy.mechanism import Mechanism
from fedsilo.silo.decision import read_decision
from fedsilo.silo.privacy_account import Budget, Charge
from fedsilo.silo.privacy_ledger import PrivacyLedger
from fedsilo.wire import SigningKey
from tests.unit.institution.parts import (
    KEY,
    MEMBER,
    NAME,
    UID,
    agent,
    agent_of,
    directory,
    mirror_of,
    spec,
    write_silo,
)

NAMES = ("north", "zoe", "amy")


class FakeForks:
    """A fork server of which a test says how processes end."""

    def __init__(self, _label: str = "") -> None:
        self.pid = 99
        self.started: dict[int, list[str]] = {}
        self.ended: dict[int, int] = {}
        self.closed = False

    def is_ready(self) -> bool:
        return True

    def start(
        self,
        program: str,
        arguments: list[str],
        log_file: Path,
        environment: Mapping[str, str] | None = None,
        modules: Sequence[str] = (),
    ) -> int:
        pid = 100 + len(self.started)
        self.started[pid] = [program, *arguments]
        return pid

    def poll(self) -> None: ...

    def exit_code(self, pid: int) -> int | None:
        return self.ended.get(pid)

    def close(self) -> None:
        self.closed = True

    def running(self, word: str) -> list[int]:
        """Process ids of programs with that word in their name."""
        return [pid for pid, line in self.started.items() if word in line[0] and pid not in self.ended]


@pytest.fixture
def forks(monkeypatch: pytest.MonkeyPatch) -> FakeForks:
    server = FakeForks()
    monkeypatch.setattr(module, "ForkServerClient", lambda label: server)

    def record_signal(process: ChildProcess, number: int) -> None:
        if process.pid is not None:
            server.ended.setdefault(process.pid, -number)

    monkeypatch.setattr(ChildProcess, "signal", record_signal)
    return server


def executor_of(place: SiloDirectory) -> Executor:
    return Executor(place, WatchedSilo(place, MEMBER, KEY.verify_key.to_text()), KEY)


def status_of(found: Executor) -> Object:
    return found.statuses()[UID][1]


def test_what_names_no_job_is_shown_as_what_cannot_be_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = directory(tmp_path / "silo")
    found = executor_of(place)
    found.follow(mirror_of(HubAgent(NAME, UID, {"silo": {"namespace": "silo-north", "name": "north"}})))
    found.step()
    arguments = ["--dir", str(place.root)]
    assert main(["silo", "status", *arguments]) == 0
    assert "cannot read it" in " ".join(capsys.readouterr().out.split())
    assert main(["silo", "approve", NAME, "--yes", *arguments]) == 2
    assert "nothing is proposed yet" in capsys.readouterr().err
    assert main(["silo", "approve", "job-uid", "--yes", *arguments]) == 2
    assert "is no SiloAgent or job uid" in capsys.readouterr().err


def test_guard_and_trainer_get_what_they_may_have(tmp_path: Path, forks: FakeForks) -> None:
    place = directory(tmp_path / "silo")
    found = executor_of(place)
    found.follow(mirror_of(agent(suspend=True)))
    found.step()
    assert (status_of(found)["phase"], forks.started) == ("Admitted", {})
    found.follow(mirror_of(agent()))
    found.step()
    (guard,) = forks.running("guard")
    (trainer,) = forks.running("trainer")
    assert f"--key {place.key_file}" in " ".join(forks.started[guard])
    line = " ".join(forks.started[trainer])
    assert str(place.private_directory) in line
    assert str(place.key_file) not in line.replace(f"--hide={place.private_directory}", "")
    for option in ("--isolate", "--require-isolation", f"--home {place.root}", f"--hide={place.logs}"):
        assert option in line
    found.step()
    assert status_of(found)["phase"] == "Running"
    volume = place.volume(UID)
    frozen = json.loads((volume.guard / "agent.json").read_text())
    assert frozen["spec"]["suspend"] is False
    assert (volume.guard / "agent.json").read_bytes() == (volume.root / "agent.json").read_bytes()


def test_the_log_has_a_line_for_each_phase_of_a_part(
    tmp_path: Path, forks: FakeForks, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "fedsilo.silo")
    found = executor_of(directory(tmp_path / "silo"))
    found.follow(mirror_of(agent(suspend=True)))
    for _ in range(3):
        found.step()
    found.follow(mirror_of(agent()))
    for _ in range(3):
        found.step()
    phases = [text.rpartition(" is ")[2] for text in caplog.messages if ": is " in text]
    assert phases == ["Admitted", "Starting", "Running"]


def test_a_tightened_policy_reaches_the_guard_that_runs(tmp_path: Path, forks: FakeForks) -> None:
    place = directory(tmp_path / "silo")
    found = executor_of(place)
    found.follow(mirror_of(agent()))
    found.step()
    write_silo(place, {"maxBytesPerRound": "1Ki"})
    found.step()
    present = json.loads((place.volume(UID).guard / "present" / "silo.json").read_text())
    assert present["spec"]["policy"]["maxBytesPerRound"] == "1Ki"
    frozen = json.loads((place.volume(UID).guard / "silo.json").read_text())
    assert "maxBytesPerRound" not in frozen["spec"]["policy"]
    assert forks.running("guard")
    write_silo(place, {"methods": ["fedprox"]})
    found.step()
    assert not forks.running("guard")
    assert not forks.running("trainer")
    assert status_of(found)["phase"] == "Refused"


def test_what_the_hub_said_first_holds(tmp_path: Path, forks: FakeForks) -> None:
    place = directory(tmp_path / "silo")
    found = executor_of(place)
    found.follow(mirror_of(agent(suspend=True)))
    found.step()
    before = status_of(found)
    found.follow(mirror_of(agent(suspend=True, url="https://elsewhere.example")))
    found.step()
    assert status_of(found) == before
    assert "elsewhere" not in place.record(UID).read_text()


def _secure_agent(members: list[dict[str, str]]) -> HubAgent:
    """The agent of a job of three silos that know each other's keys."""
    asked = spec(members=members)
    refs = [dict(zip(("namespace", "name"), f"silo-{name}/{name}".split("/"), strict=True)) for name in NAMES]
    job = asked["job"]["spec"] | {"aggregation": {"secure": True}, "silos": {"refs": refs}}
    digest = spec_digest(FederatedJobSpec.model_validate(job))
    return HubAgent(NAME, UID, asked | {"job": asked["job"] | {"spec": job, "specDigest": digest}})


def test_the_keys_of_all_silos_are_decided_on_and_reach_the_guard_unchanged(
    tmp_path: Path, forks: FakeForks
) -> None:
    keys = [KEY, *(SigningKey.from_seed(bytes([seed]) * 32) for seed in (8, 9))]
    members = [
        {"silo": f"silo-{name}/{name}", "publicKey": key.verify_key.to_text()}
        for name, key in zip(NAMES, keys, strict=True)
    ]
    place = directory(tmp_path / "silo")
    found = executor_of(place)
    found.follow(mirror_of(_secure_agent(members)))
    found.step()
    assert json.loads(place.record(UID).read_text())["spec"]["trust"]["members"] == members
    for file in (place.volume(UID).guard, place.volume(UID).root):
        assert json.loads((file / "agent.json").read_text())["spec"]["trust"]["members"] == members
    proposed = status_of(found)["proposal"]["members"]
    assert proposed == members_digest(Member.model_validate(member) for member in members)
    found.follow(mirror_of(_secure_agent(members[::-1])))
    found.step()
    assert status_of(found)["proposal"]["members"] == proposed


def test_a_part_ends_with_the_key_that_it_began_with(tmp_path: Path, forks: FakeForks) -> None:
    place = directory(tmp_path / "silo")
    found = executor_of(place)
    found.follow(mirror_of(agent()))
    found.step()
    before = status_of(found)["decision"]
    retired, key = place.retired_key_file(KEY.verify_key), SigningKey.from_seed(bytes([9]) * 32)
    retired.parent.mkdir()
    KEY.save(retired)
    again = Executor(place, WatchedSilo(place, MEMBER, key.verify_key.to_text()), key)
    again.follow(mirror_of(agent()))
    again.step()
    assert status_of(again)["decision"] == before
    write_silo(place, {"methods": ["fedprox"]})
    again.step()
    assert read_decision(status_of(again)["decision"], KEY.verify_key.to_text()).decision == "Refused"


def test_a_part_that_is_gone_ends_and_leaves_its_volume(tmp_path: Path, forks: FakeForks) -> None:
    place = directory(tmp_path / "silo")
    found = executor_of(place)
    found.follow(mirror_of(agent()))
    found.step()
    audit = place.volume(UID).audit
    found.follow(mirror_of())
    found.step()
    assert not forks.running("guard")
    assert found.statuses() == {}
    assert found.parts == {}
    assert audit.is_dir()
    assert executor_of(place).parts[UID].gone
    # The gateway was set back, and knows it again.
    began = json.loads(place.record(UID).read_text())
    found.follow(mirror_of(agent(taskKey=KEY.verify_key.to_text())))
    found.step()
    assert forks.running("guard")
    record = found.parts[UID].record
    assert (record["spec"], record["metadata"]) == (began["spec"], began["metadata"]), "what was said first"


@pytest.mark.parametrize("uid", ["../../etc", "", "a/b", ".", "x" * 65])
def test_an_identity_that_is_none_names_no_directory(tmp_path: Path, forks: FakeForks, uid: str) -> None:
    place = directory(tmp_path / "silo")
    found = executor_of(place)
    found.follow(mirror_of(agent(uid=uid)))
    found.step()
    assert (found.parts, list(place.agents.iterdir())) == ({}, [])


def test_a_trainer_that_is_lost_is_reported_by_its_guard(tmp_path: Path, forks: FakeForks) -> None:
    place = directory(tmp_path / "silo")
    found = executor_of(place)
    found.follow(mirror_of(agent()))
    found.step()
    forks.ended[forks.running("trainer")[0]] = 3
    found.step()
    found.step()
    assert status_of(found)["phase"] == "Failed"
    assert json.loads((place.volume(UID).drop / "failed.json").read_text())["reason"] == "TrainerLost"
    assert forks.running("guard"), "the guard reports it"
    # So does that of another process, which starts no trainer any more.
    again = executor_of(place)
    again.follow(mirror_of(agent()))
    forks.ended |= dict.fromkeys(forks.running("guard"), -9)
    again.step()
    assert forks.running("guard")
    assert not forks.running("trainer")
    assert (place.volume(UID).drop / "failed.json").exists()


class Crash(BaseException):
    """The process ends here."""


def crash_at(number: int, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """End at the step of that number; the steps that were done."""
    done: list[int] = []

    def intercept(_: durable.DiskStep, perform: Callable[[], None]) -> None:
        if len(done) == number:
            raise Crash
        perform()
        done.append(number)

    monkeypatch.setattr(durable, "intercept", intercept)
    return done


def work(place: SiloDirectory) -> Executor:
    found = executor_of(place)
    for asked in (agent(suspend=True), agent()):
        found.follow(mirror_of(asked))
        found.step()
        found.step()
    return found


def comparable_status(status: Any) -> Any:
    """A status without times and what is signed over them."""
    return json.loads(json.dumps(status), object_hook=_timeless)


def _timeless(found: dict[str, Any]) -> dict[str, Any]:
    return {
        name: value
        for name, value in found.items()
        if name not in ("lastTransitionTime", "time", "signature")
    }


def test_a_crash_at_any_step_changes_nothing_that_was_said(
    tmp_path: Path, forks: FakeForks, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = work(directory(tmp_path / "whole"))
    expected = comparable_status(status_of(whole))
    steps = 0
    while True:
        place = directory(tmp_path / f"crash-{steps}")
        with monkeypatch.context() as patch:
            crash_at(steps, patch)
            try:
                work(place)
            except Crash:
                ended = True
            else:
                ended = False
        said = _recorded_status(place)
        after = work(place)
        assert comparable_status(status_of(after)) == expected, f"step {steps}"
        if said is not None and said.get("decision") is not None:
            assert status_of(after)["decision"] == said["decision"], f"step {steps}"
        if not ended:
            break
        steps += 1
    assert steps > 20


def _recorded_status(place: SiloDirectory) -> Any:
    path = place.record(UID)
    return json.loads(path.read_text())["status"] if path.exists() else None


def test_metrics_are_what_is_known(tmp_path: Path, forks: FakeForks) -> None:
    place = directory(tmp_path / "silo", {"manualApproval": True})
    found = executor_of(place)
    contact = Contact.of(None, None, "0000-0000", datetime(2026, 1, 2, tzinfo=UTC))
    assert "fedsilo_silo_jobs{phase" not in exposition(found, lambda: None).text().decode()
    found.follow(mirror_of(agent(suspend=True)))
    found.step()
    lines = exposition(found, lambda: contact).text().decode().splitlines()
    labels = 'silo="north",silo_namespace="silo-north"'
    assert f"fedsilo_silo_hub_reached{{{labels}}} 1.0" in lines
    assert f'fedsilo_silo_jobs{{phase="ApprovalPending",{labels}}} 1.0' in lines
    assert any(line.startswith("fedsilo_silo_approval_pending_timestamp_seconds{") for line in lines)
    assert f"fedsilo_silo_hub_reached{{{labels}}} 0.0" in exposition(found, lambda: None).text().decode()


def private_job(number: int, epsilon: float) -> HubAgent:
    """A job of its own that states an epsilon."""
    asked = agent_of(f"job-{number}", f"0a1b2c3d-0000-4000-8000-00000000001{number}")
    job = copy.deepcopy(asked.spec["job"])
    job["spec"].setdefault("privacy", {})["differentialPrivacy"] = {
        "unit": "example",
        "epsilon": epsilon,
        "delta": 1e-3,
    }
    job["specDigest"] = spec_digest(FederatedJobSpec.model_validate(job["spec"]))
    return HubAgent(asked.name, asked.uid, {**asked.spec, "job": job, "suspend": True})


def phases(found: Executor) -> list[str]:
    return [str(status["phase"]) for _, status in found.statuses().values()]


def test_jobs_that_are_admitted_have_their_part_of_the_budget_reserved(
    tmp_path: Path, forks: FakeForks
) -> None:
    place = directory(
        tmp_path / "silo", {"privacyBudget": [{"dataset": "digits", "epsilon": 4.0, "delta": 1e-3}]}
    )
    found, jobs = executor_of(place), [private_job(1, 3.0), private_job(2, 1.5), private_job(3, 1.0)]
    found.follow(mirror_of(*jobs))
    found.step()
    assert phases(found) == ["Admitted", "Refused", "Admitted"]
    # A machine that is slow comes to it again in the next step, when the third has its part reserved too.
    message = found.statuses()[jobs[1].uid][1]["message"]
    assert (
        "of which 0 is spent and 3 is reserved for jobs that it has admitted, and the job wants 1.5"
        in message
    )
    found.step()
    assert phases(found) == ["Admitted", "Refused", "Admitted"]
    again = executor_of(place)
    again.follow(mirror_of(*jobs))
    again.step()
    assert phases(again) == ["Admitted", "Refused", "Admitted"], "what is reserved outlives the process"
    again = executor_of(place)
    again.follow(mirror_of(*jobs[1:]))
    again.step()
    assert phases(again) == ["Admitted", "Admitted"], "the hub asks for the first one no more"


def test_what_a_job_has_been_charged_is_not_reserved_too(tmp_path: Path, forks: FakeForks) -> None:
    place = directory(
        tmp_path / "silo", {"privacyBudget": [{"dataset": "digits", "epsilon": 4.0, "delta": 1e-3}]}
    )
    found, jobs = executor_of(place), [private_job(1, 2.0), private_job(2, 2.0)]
    found.follow(mirror_of(jobs[0]))
    found.step()
    ledger = PrivacyLedger(place.ledgers, "digits")
    ledger.set_budget(Budget(4.0, 1e-3), datetime.now(UTC))
    ledger.charge(Charge("federation/digits", "job-1", "a" * 64, (Mechanism(2.0),)), datetime.now(UTC))
    assert 1.0 < ledger.account(datetime.now(UTC)).spent_epsilon < 2.0
    found.follow(mirror_of(*jobs))
    found.step()
    assert phases(found) == ["Admitted", "Admitted"]


def test_what_is_spent_of_a_budget_is_a_metric(tmp_path: Path, forks: FakeForks) -> None:
    place = directory(tmp_path / "silo")
    found = executor_of(place)
    assert "fedsilo_privacy_epsilon_spent{" not in exposition(found, lambda: None).text().decode()
    ledger = PrivacyLedger(place.ledgers, "digits")
    ledger.set_budget(Budget(4.0, 1e-3), datetime.now(UTC))
    ledger.charge(Charge("federation/digits", "job-1", "a" * 64, (Mechanism(2.0),)), datetime.now(UTC))
    spent = ledger.account(datetime.now(UTC)).spent_epsilon
    line = (
        f'fedsilo_privacy_epsilon_spent{{dataset="digits",silo="north",silo_namespace="silo-north"}} {spent}'
    )
    assert line in exposition(found, lambda: None).text().decode().splitlines()
    ledger.path.write_text("{}\n")
    assert "fedsilo_privacy_epsilon_spent{" not in exposition(found, lambda: None).text().decode()
