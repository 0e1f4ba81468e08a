"""The trainer answers or says why not, whatever its inbox, its method or its data do."""

from __future__ import annotations

import errno
import hashlib
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fedsilo.api.silo import Silo
from fedsilo.errors import FedsiloError, MethodError, PolicyRefused
from fedsilo.files import durable, full_disk
from fedsilo.files.durable import DiskStep
from fedsilo.files.json_files import write_json, write_with_digest
from fedsilo.methods.interface import Exchange, Phase, Reply, SiloTask
from fedsilo.methods.state import State
from fedsilo.silo import drop as drop_module
from fedsilo.silo.volume import Volume
from fedsilo.wire import FINISH, write_blob
from fedsilo_agent.trainer import __main__ as trainer_module
from fedsilo_agent.trainer.__main__ import _arguments, _run
from fedsilo_agent.trainer.loop import Trainer
from fedsilo_agent.trainer.mailbox import Mailbox
from tests.federate import job_spec, silo_of_file

TASK = "r00001-train-north"


class Method:
    """A method that replies what it is told to, or raises it."""

    def __init__(self, reply: Reply | BaseException) -> None:
        self.reply = reply

    def run(self, task: SiloTask, private: State) -> Reply:
        if isinstance(self.reply, BaseException):
            raise self.reply
        return self.reply


@pytest.fixture
def volume(tmp_path: Path) -> Volume:
    volume = Volume(tmp_path)
    volume.prepare()
    return volume


def answer(volume: Volume, reply: Reply | BaseException, digest: str = "", round: int = 1) -> tuple[str, Any]:
    """What the trainer drops for a task: the name of its file, and what is in it."""
    digest = digest or write_blob({"w": np.ones(2, np.float32)}, volume.blobs).digest
    document = {
        "task": TASK,
        "step": "train",
        "phase": "train",
        "round": round,
        "settings": {},
        "acknowledged": None,
    }
    write_with_digest(volume.task, document | {"trees": {"model": digest}})
    mailbox = Mailbox(volume, [Exchange(Phase("train", 1, "train"), 1, 1, 1)])
    runner: Any = Method(reply)
    no_personal_model: Any = None
    Trainer(mailbox, runner, no_personal_model).answer(TASK)
    [path] = (volume.drop / TASK).glob("*.json")
    assert mailbox.pending_task() is None
    said = json.loads(path.read_bytes())
    return path.name, {name: value for name, value in said.items() if name not in ("tensors", "sha256")}


def test_a_failing_disk_is_no_answer(volume: Volume, monkeypatch: pytest.MonkeyPatch) -> None:
    """The task is done again by the next trainer, instead of failing."""

    def fail(step: DiskStep, perform: Callable[[], None]) -> None:
        if step.target is not None and step.target.name == "tensors":
            raise OSError(errno.EIO, "Input/output error", str(step.path))
        perform()

    reply = Reply({}, 1, {}, {})
    with monkeypatch.context() as failing:
        failing.setattr(durable, "intercept", fail)
        with pytest.raises(OSError, match="Input/output"):
            answer(volume, reply)
    assert list((volume.drop / TASK).glob("*.json")) == []
    assert answer(volume, reply)[0] == "reply.json"


def test_numbers_of_numpy_are_numbers(volume: Volume) -> None:
    reply = Reply({}, np.int64(7), {"loss": np.float32(0.5)}, {"mean/1": np.int32(9)})  # type: ignore[arg-type, dict-item]
    assert answer(volume, reply) == (
        "reply.json",
        {"samples": 7, "metrics": {"loss": 0.5}, "support": {"mean/1": 9}},
    )


def test_a_blob_that_holds_no_tensors_is_reported(volume: Volume) -> None:
    digest = hashlib.sha256(b"junk").hexdigest()
    (volume.blobs / digest).write_bytes(b"junk")
    name, said = answer(volume, Reply(), digest)
    assert (name, said["reason"]) == ("failed.json", "ProtocolProblem")


def test_a_round_that_the_job_does_not_have_is_reported(volume: Volume) -> None:
    name, said = answer(volume, Reply(), round=9)
    assert (name, said["reason"]) == ("failed.json", "MethodError")


@pytest.mark.parametrize(
    "reply",
    [Reply(samples="many"), ZeroDivisionError("nothing to divide"), SystemExit(0)],  # type: ignore[arg-type]
)
def test_a_defect_of_the_method_is_reported(volume: Volume, reply: Reply | BaseException) -> None:
    name, said = answer(volume, reply)
    assert (name, said["reason"]) == ("failed.json", "TrainerError")


@pytest.mark.parametrize(
    ("method", "path", "reason"),
    [("new", "there.npz", "ManifestInvalid"), ("fedavg", "gone.npz", "DataInvalid")],
)
def test_what_no_task_could_mend_is_reported_before_the_guard_is_there(
    tmp_path: Path, method: str, path: str, reason: str
) -> None:
    """Whatever an earlier trainer said, and although there is no inbox yet."""
    spec = job_spec("fedavg", ["north"]).model_dump(by_alias=True, mode="json", exclude_none=True)
    silo = silo_of_file(tmp_path / path, "north")
    volume = Volume(tmp_path / "volume")
    volume.prepare_trainer()
    volume.drop.joinpath("failed.json").write_text("{}")
    arguments = documents(tmp_path, spec | {"method": {"name": method}}, silo)
    with pytest.raises(FedsiloError):
        _run(_arguments([*arguments, "--volume", str(volume.root)]))
    assert json.loads((volume.drop / "failed.json").read_bytes())["reason"] == reason
    assert sorted(path.name for path in volume.root.iterdir()) == ["drop", "state"]


def test_where_isolation_is_required_no_code_of_a_job_runs_without_it(
    volume: Volume, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusal = "not isolated: this system permits no network namespace (EPERM)"
    monkeypatch.setattr(trainer_module, "isolate", lambda *_: refusal)
    monkeypatch.setattr(trainer_module, "_mailbox_and_runner", lambda *_: pytest.fail("it went on"))
    documents = ["--agent", "agent.json", "--silo", "silo.json", "--volume", str(volume.root)]
    with pytest.raises(PolicyRefused, match=r"permit this user network and mount namespaces"):
        _run(_arguments([*documents, "--isolate", "--require-isolation"]))
    reported = json.loads((volume.drop / "failed.json").read_text())
    assert reported["reason"] == "PolicyRefused"
    assert refusal in reported["message"]


def test_a_model_that_ends_the_process_is_reported_instead_of_ending_the_trainer_with_0(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def leave(*_: object) -> None:
        sys.exit(0)

    monkeypatch.setattr("fedsilo.silo.context.open_context", leave)
    spec = job_spec("fedavg", ["north"]).model_dump(by_alias=True, mode="json", exclude_none=True)
    arguments = documents(tmp_path, spec, silo_of_file(tmp_path / "there.npz", "north"))
    volume = Volume(tmp_path / "volume")
    with pytest.raises(MethodError, match=r"called sys\.exit\(0\)"):
        _run(_arguments([*arguments, "--volume", str(volume.root)]))
    assert json.loads((volume.drop / "failed.json").read_bytes())["reason"] == "MethodError"


def documents(directory: Path, spec: dict[str, Any], silo: Silo) -> list[str]:
    """SiloAgent and Silo as files, and the arguments that name them."""
    job = {"namespace": "federation", "name": "job", "uid": "1", "specDigest": "0" * 64, "spec": spec}
    key = "ed25519:" + "A" * 43 + "="
    pem = "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n"
    trust = {"url": "https://a:8443", "caCertificate": pem, "taskKey": key, "publicKey": key}
    reference = {"namespace": "silos", "name": "north"}
    agent = {
        "apiVersion": "fedsilo.io/v1alpha1",
        "kind": "SiloAgent",
        "metadata": {"name": "job-north", "namespace": "silos"},
        "spec": {"job": job, "silo": reference, "trust": trust},
    }
    write_json(directory / "agent.json", agent)
    write_json(directory / "silo.json", silo.model_dump(by_alias=True, mode="json", exclude_none=True))
    return ["--agent", str(directory / "agent.json"), "--silo", str(directory / "silo.json")]


class Inbox:
    """An inbox with a task that was there before the trainer started."""

    def __init__(self, volume: Volume, monkeypatch: pytest.MonkeyPatch) -> None:
        self.volume = volume
        self.now = 0.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now)
        self.tree = {"w": np.arange(500, dtype=np.float32)}
        self.blob = volume.blobs / write_blob(self.tree, volume.blobs).digest
        self.write_task()

    def write_task(self, name: str = TASK, step: str = "train") -> None:
        document = {"task": name, "step": step, "phase": step, "round": 1, "settings": {}}
        write_with_digest(
            self.volume.task, document | {"acknowledged": None, "trees": {"model": self.blob.name}}
        )

    def restarted_mailbox(self) -> Mailbox:
        return Mailbox(self.volume, [Exchange(Phase("train", 1, "train"), 1, 1, 1)])


@pytest.fixture
def inbox(volume: Volume, monkeypatch: pytest.MonkeyPatch) -> Inbox:
    return Inbox(volume, monkeypatch)


def flip(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)


def test_a_blob_that_a_restart_finds_damaged_waits_for_the_guard(
    inbox: Inbox, caplog: pytest.LogCaptureFixture
) -> None:
    flip(inbox.blob, -3)
    mailbox = inbox.restarted_mailbox()
    assert [mailbox.pending_task() for _ in range(3)] == [None] * 3
    assert caplog.text.count(f"{inbox.blob}: its SHA-256") == 1
    inbox.blob.unlink()
    assert mailbox.pending_task() is None
    write_blob(inbox.tree, inbox.volume.blobs)
    assert mailbox.pending_task() == TASK
    found = mailbox.receive(TASK)
    assert found is not None
    assert found.task.trees["model"]["w"].tolist() == list(range(500))


def test_a_blob_that_a_restart_does_not_find_waits_for_the_guard(inbox: Inbox) -> None:
    inbox.blob.unlink()
    mailbox = inbox.restarted_mailbox()
    assert [mailbox.pending_task() for _ in range(3)] == [None] * 3
    write_blob(inbox.tree, inbox.volume.blobs)
    assert mailbox.pending_task() == TASK


@pytest.mark.parametrize(("name", "step"), [(FINISH, FINISH), ("r00002-train-north", "train")])
def test_a_task_that_another_has_replaced_is_not_answered(inbox: Inbox, name: str, step: str) -> None:
    mailbox = inbox.restarted_mailbox()
    assert mailbox.pending_task() == TASK
    inbox.write_task(name, step)
    runner: Any = Method(Reply())
    no_personal_model: Any = None
    Trainer(mailbox, runner, no_personal_model).answer(TASK)
    assert not list(inbox.volume.drop.iterdir())
    assert mailbox.pending_task() == (None if step == FINISH else name), "the end is no task to answer"


def test_a_blob_that_stays_damaged_is_reported_with_its_name(inbox: Inbox) -> None:
    flip(inbox.blob, -3)
    mailbox = inbox.restarted_mailbox()
    assert mailbox.pending_task() is None
    inbox.now += 61
    assert mailbox.pending_task() == TASK
    runner: Any = Method(Reply())
    no_personal_model: Any = None
    Trainer(mailbox, runner, no_personal_model).answer(TASK)
    said = json.loads((inbox.volume.drop / TASK / "failed.json").read_bytes())
    assert f"{inbox.blob}: its SHA-256" in said["message"]


def test_a_damaged_task_waits_for_the_guard_and_drops_no_private_state(inbox: Inbox) -> None:
    mailbox = inbox.restarted_mailbox()
    kept = inbox.volume.state / "r00000-train-north"
    kept.mkdir()
    flip(inbox.volume.task, 20)
    assert (mailbox.pending_task(), mailbox.is_finished()) == (None, False)
    assert mailbox.acknowledged_state() == State()
    assert kept.exists()
    inbox.write_task()
    assert mailbox.pending_task() == TASK
    flip(inbox.volume.task, 20)
    assert mailbox.pending_task() is None
    inbox.now += 61
    with pytest.raises(FedsiloError, match=f"{inbox.volume.task}: "):
        mailbox.pending_task()


def test_private_state_that_is_damaged_is_reported_with_its_name(inbox: Inbox) -> None:
    before = inbox.restarted_mailbox()
    before.deliver("r00000", Reply(private=State({"control": inbox.tree})), State())
    [stored] = (path for path in (inbox.volume.state / "r00000").iterdir() if path.name != "state.json")
    flip(stored, -3)
    document = {"task": TASK, "step": "train", "phase": "train", "round": 1, "settings": {}, "trees": {}}
    write_with_digest(inbox.volume.task, document | {"acknowledged": "r00000"})
    runner: Any = Method(Reply())
    personal: Any = SimpleNamespace(publish=lambda _: None)
    trainer = Trainer(inbox.restarted_mailbox(), runner, personal)
    trainer._publish()
    trainer.answer(TASK)
    said = json.loads((inbox.volume.drop / TASK / "failed.json").read_bytes())
    assert f"{stored}: its SHA-256" in said["message"]


@pytest.mark.parametrize("written", ["rename", "write_with_digest"], ids=["tensors", "reply"])
def test_a_full_disk_is_waited_out(
    written: str, inbox: Inbox, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    write, full = getattr(drop_module, written), [True, True]

    def on_a_full_disk(*arguments: Any) -> Any:
        if full:
            full.pop()
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(*arguments)

    monkeypatch.setattr(full_disk, "FULL_DISK_SECONDS", 0.0)
    monkeypatch.setattr(drop_module, written, on_a_full_disk)
    mailbox = inbox.restarted_mailbox()
    runner: Any = Method(Reply({"w": np.ones(2, np.float32)}, 5))
    no_personal_model: Any = None
    Trainer(mailbox, runner, no_personal_model).answer(TASK)
    assert json.loads((inbox.volume.drop / TASK / "reply.json").read_bytes())["samples"] == 5
    assert "the disk is full" in caplog.text


@pytest.mark.parametrize("name", ["tensors", "reply.json"])
def test_a_reply_that_a_restart_finds_damaged_is_computed_again(name: str, inbox: Inbox) -> None:
    before = inbox.restarted_mailbox()
    before.deliver(TASK, Reply({"w": np.ones(2, np.float32)}, 5), State())
    assert before.pending_task() is None
    again = inbox.restarted_mailbox()
    again.clear()
    assert again.pending_task() is None
    flip(inbox.volume.drop / TASK / name, -3)
    again = inbox.restarted_mailbox()
    again.clear()
    assert again.pending_task() == TASK
