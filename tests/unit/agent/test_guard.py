"""A guard over a disk that is damaged or full, and an aggregator that refuses: no honest update is lost in silence."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedsilo import durable, full_disk
from fedsilo.api.agent import SiloAgent
from fedsilo.api.digest import spec_digest
from fedsilo.api.loading import load_document
from fedsilo.api.parameters import InitialWeightsSpec
from fedsilo.api.silo import Silo
from fedsilo.errors import PolicyRefused, Problem
from fedsilo.json_files import read_json, write_with_digest
from fedsilo.local.outcome import clear_outcome, is_dismissed
from fedsilo.silo.announcement import Schema, require_declared
from fedsilo.silo.drop import write_digests
from fedsilo.silo.volume import Volume
from fedsilo.wire import FINISH, BlobLink, SigningKey, Task, seal_task, write_blob, write_tensors
from fedsilo_agent.guard import audit, inbox, loop
from fedsilo_agent.guard.inspection import Announcement
from fedsilo_agent.guard.loop import Guard
from fedsilo_agent.guard.task_check import TaskCheck
from tests.integration.service.client import contract_of, signature_of
from tests.integration.service.scripted import TREE
from tests.integration.service.site import Site, federation

TASK = "r00001-train-north"


class Aggregator:
    """The guard's client in memory.

    :ivar uploads: the updates that arrived, by task.
    :ivar ended: whether the job is over, whatever was answered.
    :ivar refusals: what the next uploads are refused with.
    """

    def __init__(self, key: SigningKey, blob: bytes) -> None:
        self.key = key
        self.blob = blob
        self.tasks: list[Task] = []
        self.uploads: dict[str, list[bytes]] = {}
        self.refusals: list[Problem] = []
        self.failures: dict[str, tuple[str, str]] = {}
        self.fetched = 0
        self.ended = False
        self.repeats = 0

    async def task(self, after: str, wait: float) -> bytes | None:
        names = [task.task for task in self.tasks]
        if after == FINISH:
            return None
        position = names.index(after) + 1 if after in names else 0
        if self.repeats > 0 and position > 0:
            self.repeats -= 1
            return seal_task(self.tasks[position - 1], self.key)
        while position > 0 and not self.is_settled(names[position - 1]):
            await asyncio.sleep(0.001)
        return seal_task(self.tasks[position], self.key)

    def is_settled(self, task: str) -> bool:
        return self.ended or task in self.uploads or task in self.failures

    async def download(self, link: BlobLink, path: Path) -> None:
        self.fetched += 1
        arrived = path.with_suffix(".part")
        arrived.write_bytes(self.blob)
        arrived.replace(path)

    async def upload(self, task: str, path: Path, digest: str) -> None:
        content = path.read_bytes()
        assert hashlib.sha256(content).hexdigest() == digest
        if self.refusals:
            raise self.refusals.pop(0)
        self.uploads.setdefault(task, []).append(content)

    async def report_failure(self, task: str, reason: str, message: str) -> None:
        self.failures[task] = (reason, message)


class Scene:
    """A silo's volume, its guard and the aggregator; the trainer has dropped an honest reply already."""

    def __init__(self, root: Path, data: Any = None, policy: Any = None) -> None:
        site = Site(root, federation(rounds=3, data=data, policy=policy), port=1)
        directory = site.workdir.silo("north")
        agent = load_document(directory / "agent.json", SiloAgent)
        self.check = TaskCheck(agent, load_document(directory / "silo.json", Silo))
        self.volume: Volume = site.workdir.volume("north")
        self.volume.prepare()
        self.key = SigningKey.load(self.volume.guard / "key.pem")
        ref = write_blob(TREE, site.workdir.aggregator)
        content = (site.workdir.aggregator / ref.digest).read_bytes()
        self.aggregator = Aggregator(SigningKey.load(site.workdir.secrets / "task-key.pem"), content)
        self.blob = self.volume.blobs / ref.digest
        self.contract = contract_of(site, "train", TREE)
        self.honest: dict[str, Any] = {
            "job": site.uid,
            "silo": site.silos[0],
            "task": TASK,
            "round": 1,
            "phase": "train",
            "step": "train",
            "spec_digest": bytes.fromhex(site.spec_digest),
            "contract": bytes.fromhex(self.contract.digest()),
            "blobs": (BlobLink("model", ref.digest, ref.length),),
        }
        self.announce()
        self.drop(TASK)

    def announce(self) -> None:
        """What a trainer does first, whenever it starts."""
        document = {"signature": signature_of(TREE).to_dict(), "isolation": "none"}
        (self.volume.drop / "signature.json").write_text(json.dumps(document))

    def drop(self, task: str) -> None:
        directory = self.volume.drop / task
        directory.mkdir()
        write_tensors(TREE, directory / "tensors")
        (directory / "reply.json").write_text(json.dumps({"samples": 10, "metrics": {}, "support": {}}))

    @property
    def update(self) -> Path:
        return self.volume.outbox / f"{TASK}.update"

    async def run(self) -> None:
        """Start a guard and let it answer the task, to the end of the job; one that had ended goes on, as resumed."""
        if is_dismissed(self.volume):
            clear_outcome(self.volume)
            self.announce()
        self.aggregator.tasks = self.tasks()
        client: Any = self.aggregator
        async with asyncio.timeout(60):
            await Guard(self.check, self.volume, self.key, client).run()

    def tasks(self) -> list[Task]:
        """The one task, and the end of the job."""
        finish = {"task": FINISH, "step": FINISH, "blobs": (), "settings": {"succeeded": True}}
        return [Task(**self.honest), Task(**(self.honest | finish))]

    def events(self) -> list[str]:
        lines = (self.volume.audit / "log.jsonl").read_text().splitlines()
        return [json.loads(line)["event"] for line in lines]


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


@pytest.fixture
async def killed(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> Scene:
    """A scene whose first guard died with the signed update in its outbox."""

    async def die(*_: object) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as dying:
        dying.setattr(scene.aggregator, "upload", die)
        with pytest.raises(ZeroDivisionError):
            await scene.run()
    assert scene.update.exists()
    return scene


def flip(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)


async def test_an_update_that_is_damaged_in_the_outbox_is_signed_again(
    killed: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    signed = killed.update.read_bytes()
    flip(killed.update, -1)
    await killed.run()
    assert killed.aggregator.uploads[TASK] == [signed]
    assert f"{killed.update}: damaged" in caplog.text
    assert killed.events() == ["signature", "departure", "departure", "acknowledged", "finished"]


async def test_a_restarted_guard_sends_what_was_signed_and_fetches_nothing(killed: Scene) -> None:
    signed = killed.update.read_bytes()
    await killed.run()
    assert killed.aggregator.uploads[TASK] == [signed]
    assert killed.aggregator.fetched == 1
    assert killed.events() == ["signature", "departure", "acknowledged", "finished"]


def test_a_task_that_hands_out_other_initial_weights_than_the_job_is_refused(scene: Scene) -> None:
    """The institution approved a job with this digest."""
    agent, job = scene.check.agent, scene.check.agent.spec.job
    given = InitialWeightsSpec(sha256="a" * 64, file="start.safetensors")
    spec = job.spec.model_copy(update={"model": job.spec.model.model_copy(update={"initial_weights": given})})
    frozen = agent.spec.model_copy(update={"job": job.model_copy(update={"spec": spec})})
    check = replace(scene.check, agent=agent.model_copy(update={"spec": frozen}))
    honest = Task(**scene.honest | {"spec_digest": bytes.fromhex(spec_digest(spec))})

    def opened(digest: str) -> Task:
        blobs = (*honest.blobs, BlobLink("initialWeights", digest, 10))
        return check.open(seal_task(replace(honest, blobs=blobs), scene.aggregator.key))

    assert opened("a" * 64).blobs[-1].digest == "a" * 64
    with pytest.raises(
        Problem, match="task-mismatch: the task hands out initial weights bbbbbbbbbbbb, the job's are"
    ):
        opened("b" * 64)


async def test_a_damaged_blob_of_the_inbox_is_fetched_again(
    killed: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    killed.update.unlink()
    flip(killed.blob, -1)
    await killed.run()
    assert killed.aggregator.fetched == 2
    assert killed.blob.read_bytes() == killed.aggregator.blob
    assert f"{killed.blob}: damaged" in caplog.text


async def test_a_blob_that_holds_is_not_fetched_again(killed: Scene) -> None:
    killed.update.unlink()
    await killed.run()
    assert killed.aggregator.fetched == 1


async def test_a_final_refusal_is_known_to_both_sides(scene: Scene) -> None:
    scene.aggregator.refusals = [Problem("not-finite", "block encoder.weight has a NaN")]
    await scene.run()
    reason, message = scene.aggregator.failures[TASK]
    assert (reason, message) == ("ProtocolProblem", "not-finite: block encoder.weight has a NaN")
    assert scene.events() == ["signature", "departure", "not-accepted", "finished"]
    assert not scene.update.exists()


async def test_an_update_that_is_too_late_is_no_failure(killed: Scene) -> None:
    killed.aggregator.refusals = [Problem("round-closed", "too late")]
    killed.honest |= {"task": "r00002-train-north", "round": 2}
    killed.drop("r00002-train-north")
    await killed.run()
    assert killed.aggregator.failures == {}
    events = ["signature", "departure", "not-accepted", "departure", "acknowledged", "finished"]
    assert killed.events() == events


async def test_a_blob_that_cannot_be_had_is_reported(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    async def download(*_: object) -> None:
        raise Problem("digest-mismatch", "blob model: received 1, the task names 2")

    monkeypatch.setattr(scene.aggregator, "download", download)
    await scene.run()
    assert scene.aggregator.failures[TASK][0] == "ProtocolProblem"
    assert scene.events() == ["signature", "not-accepted", "finished"]


def full_once(write: Callable[..., Any]) -> Callable[..., Any]:
    """The function, which finds the disk full the first time."""
    tries: list[int] = []

    def on_a_full_disk(*arguments: Any, **options: Any) -> Any:
        tries.append(1)
        if len(tries) == 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(*arguments, **options)

    return on_a_full_disk


@pytest.mark.parametrize(
    ("module", "name"),
    [(audit, "append_durably"), (loop, "sign_reply"), (inbox, "write_with_digest")],
    ids=["audit log", "update", "inbox"],
)
async def test_a_full_disk_is_waited_out(
    module: Any,
    name: str,
    scene: Scene,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(full_disk, "FULL_DISK_SECONDS", 0.0)
    monkeypatch.setattr(module, name, full_once(getattr(module, name)))
    await scene.run()
    assert len(scene.aggregator.uploads[TASK]) == 1
    assert "the disk is full" in caplog.text
    assert scene.events() == ["signature", "departure", "acknowledged", "finished"]


async def test_an_acknowledgement_for_which_there_is_no_space_is_not_asked_for_again(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The aggregator may have ended by the time at which the line can be written."""
    tries: list[str] = []
    append = durable.append_durably

    def on_a_full_disk(path: Path, line: str) -> None:
        if '"acknowledged"' in line and len(tries) < 3:
            tries.append(line)
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        append(path, line)

    monkeypatch.setattr(full_disk, "FULL_DISK_SECONDS", 0.0)
    monkeypatch.setattr(audit, "append_durably", on_a_full_disk)
    await scene.run()
    assert len(tries) == 3
    assert len(scene.aggregator.uploads[TASK]) == 1
    assert scene.events() == ["signature", "departure", "acknowledged", "finished"]


async def test_blobs_for_which_there_is_no_space_now_are_waited_for(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    found = shutil.disk_usage(scene.volume.root)
    usages = [found._replace(free=0), found]
    monkeypatch.setattr(full_disk, "FULL_DISK_SECONDS", 0.0)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usages.pop(0))
    await scene.run()
    assert len(scene.aggregator.uploads[TASK]) == 1
    assert "0 are free" in caplog.text


async def test_a_task_that_is_given_again_and_again_is_answered_all_the_same(scene: Scene) -> None:
    scene.aggregator.repeats = 8
    await scene.run()
    assert set(scene.aggregator.uploads) == {TASK}
    assert len(set(scene.aggregator.uploads[TASK])) == 1
    assert scene.events()[-2:] == ["acknowledged", "finished"]
    assert scene.aggregator.fetched == 1


async def test_the_trainer_learns_what_was_acknowledged_from_the_audit_log(killed: Scene) -> None:
    await killed.run()
    document = read_json(killed.volume.task)
    assert document["acknowledged"] == TASK
    names = {path.name for path in killed.volume.guard.iterdir()}
    assert names == {"agent.json", "silo.json", "key.pem", "outbox"}, (
        "no second record that could say otherwise"
    )


@pytest.mark.parametrize("name", ["tensors", "reply.json"])
async def test_a_drop_that_a_restart_finds_damaged_is_not_signed(
    name: str, killed: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "REPAIR_SECONDS", 0.0)
    killed.update.unlink()
    drop = killed.volume.drop / TASK
    names = ("tensors", "reply.json")
    write_digests(drop, {name: hashlib.sha256((drop / name).read_bytes()).hexdigest() for name in names})
    flip(drop / name, -3)
    await killed.run()
    assert killed.aggregator.uploads == {}
    assert f"{TASK}/{name}: damaged" in killed.aggregator.failures[TASK][1]


async def test_a_damaged_signature_is_not_judged_until_the_trainer_has_replaced_it(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = scene.volume.drop / "signature.json"
    document = json.loads(path.read_text())
    write_with_digest(path, document)
    flip(path, 40)

    async def replaced(_seconds: float) -> None:
        write_with_digest(path, document)

    with monkeypatch.context() as waiting:
        waiting.setattr(asyncio, "sleep", replaced)
        assert await guard_of(scene)._announced() == Announcement(document["signature"], "none", None)
    assert f"{path}: damaged" in caplog.text


async def test_a_signature_that_stays_damaged_is_an_error_that_names_it(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = scene.volume.drop / "signature.json"
    write_with_digest(path, json.loads(path.read_text()))
    flip(path, 40)
    monkeypatch.setattr(loop, "REPAIR_SECONDS", 0.0)
    await scene.run()
    reason, message = scene.aggregator.failures[TASK]
    assert reason == "FileDamaged"
    assert message == f"{path}: damaged, it is not what the trainer wrote; start the trainer again"


def guard_of(scene: Scene) -> Guard:
    client: Any = scene.aggregator
    return Guard(scene.check, scene.volume, scene.key, client)


async def test_a_damaged_drop_is_not_judged_until_the_trainer_has_done_the_task_again(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    drop = scene.volume.drop / TASK
    write_digests(drop, {"tensors": "0" * 64, "reply.json": "0" * 64})

    async def repaired(_seconds: float) -> None:
        shutil.rmtree(drop, ignore_errors=True)

    with monkeypatch.context() as waiting:
        waiting.setattr(asyncio, "sleep", repaired)
        await guard_of(scene)._check_found(drop, scene.contract)
    assert not drop.exists()
    assert f"{TASK}/reply.json: damaged" in caplog.text


def announce(scene: Scene, schema: object, signature: bool = True) -> None:
    """Have the trainer announce a schema beside its model's signature, or in its place."""
    path = scene.volume.drop / "signature.json"
    document = json.loads(path.read_text()) | {"schema": schema}
    if not signature:
        del document["signature"]
        failure = {"reason": "DataInvalid", "message": "class 'plane' is not a class of the job"}
        (scene.volume.drop / "failed.json").write_text(json.dumps(failure))
    path.write_text(json.dumps(document))


class Comparing:
    """What the aggregator does with announced schemata; it is put into the client's place for them.

    :ivar announced: what arrived, and whether the trainer had been given a task by then.
    """

    def __init__(self, scene: Scene, refusal: Problem | None = None) -> None:
        self.announced: list[tuple[bytes, bool]] = []
        self._scene = scene
        self._refusal = refusal
        scene.aggregator.announce_schema = self  # type: ignore[attr-defined]

    async def __call__(self, content: bytes) -> None:
        self.announced.append((content, self._scene.volume.task.exists()))
        if self._refusal is not None:
            self._scene.aggregator.ended = self._refusal.code == "schema-mismatch"
            raise self._refusal


async def test_a_schema_is_announced_before_the_trainer_has_a_task(scene: Scene) -> None:
    announce(scene, {"classes": ["cat", "dog", "parrot"]})
    comparing = Comparing(scene)
    await scene.run()
    assert comparing.announced == [(b'{"classes":["cat","dog","parrot"]}', False)]
    assert list(scene.aggregator.uploads) == [TASK]
    line = json.loads((scene.volume.audit / "log.jsonl").read_text().splitlines()[0])
    assert line["schema"] == hashlib.sha256(comparing.announced[0][0]).hexdigest()


async def test_where_schemata_differ_the_trainer_gets_no_task_and_nothing_leaves(scene: Scene) -> None:
    announce(scene, {"classes": ["cat", "dog", "parrot"]})
    comparing = Comparing(scene, Problem("schema-mismatch", "silo b: class 'prrot'"))
    await scene.run()
    assert (len(comparing.announced), scene.aggregator.uploads, scene.aggregator.failures) == (1, {}, {})
    assert scene.events() == ["signature", "not-accepted", "finished"]
    line = json.loads((scene.volume.audit / "log.jsonl").read_text().splitlines()[1])
    digest = hashlib.sha256(comparing.announced[0][0]).hexdigest()
    assert (line["code"], line["schema"], line["detail"]) == (
        "schema-mismatch",
        digest,
        "silo b: class 'prrot'",
    )


@pytest.mark.parametrize("told", [True, False])
async def test_a_trainer_with_other_names_than_the_job_s_is_announced_too(scene: Scene, told: bool) -> None:
    announce(scene, {"classes": ["plane"]}, signature=False)
    comparing = Comparing(scene, Problem("schema-mismatch", "class 'plane'") if told else None)
    await scene.run()
    assert comparing.announced == [(b'{"classes":["plane"]}', False)]
    assert scene.aggregator.uploads == {}
    failure = ("DataInvalid", "class 'plane' is not a class of the job")
    assert scene.aggregator.failures == ({} if told else {TASK: failure})


async def test_an_aggregator_of_an_earlier_release_compares_nothing(scene: Scene) -> None:
    announce(scene, {"classes": ["cat", "dog", "parrot"]})
    Comparing(scene, Problem("malformed", "POST /v1/jobs/j/schema: Not Found"))
    await scene.run()
    assert list(scene.aggregator.uploads) == [TASK]


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ({"classes": "cat"}, "signature.json: schema: classes: 'cat' is not a list of at most 100000 names"),
        (
            {"rows": 7},
            "signature.json: schema: \"{'rows': 7}\" is not an object with any of classes, columns",
        ),
    ],
)
async def test_what_is_no_schema_is_not_announced(scene: Scene, schema: object, problem: str) -> None:
    announce(scene, schema)
    comparing = Comparing(scene)
    await scene.run()
    assert (comparing.announced, scene.aggregator.uploads) == ([], {})
    reason, message = scene.aggregator.failures[TASK]
    assert (reason, problem in message) == ("PolicyRefused", True), message


async def test_names_do_not_change_once_they_were_announced(scene: Scene) -> None:
    announce(scene, {"classes": ["cat", "dog", "parrot"]})
    Comparing(scene)
    scene.aggregator.refusals = []
    await scene.run()
    scene.volume.task.unlink()
    announce(scene, {"classes": ["dog", "cat", "parrot"]})
    guard = guard_of(scene)
    with pytest.raises(PolicyRefused, match="the trainer's data are not named as they were before round 1"):
        await guard._contract(Task(**scene.honest))


def test_a_guard_derives_the_names_of_the_job_itself(scene: Scene) -> None:
    spec = scene.check.agent.spec.job.spec
    named = spec.model_copy(
        update={"data": spec.data.model_copy(update={"classes": ("cat", "dog", "parrot")})}
    )
    require_declared(named.data, Schema(classes=("cat", "dog", "parrot")))
    for schema in (None, Schema(), Schema(classes=("dog", "cat", "parrot")), Schema(classes=("cat", "dog"))):
        with pytest.raises(PolicyRefused):
            require_declared(named.data, schema)
    require_declared(spec.data, None)
