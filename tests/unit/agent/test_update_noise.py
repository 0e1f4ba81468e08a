"""What a guard makes of a reply where the job hides whole silos: the same bytes again, other noise for others."""

from __future__ import annotations

import json
import stat
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from fedsilo.errors import FedsiloError, FileDamaged, PolicyRefused
from fedsilo.silo.release import ReleaseRules
from fedsilo.silo.reply_limits import ReplyLimits
from fedsilo.silo.secret import Secret
from fedsilo.silo.volume import Volume
from fedsilo.transforms.update_noise.guard import UpdateNoiseGuardSide
from fedsilo.transforms.update_noise.privacy import UpdatePrivacy
from fedsilo.wire import (
    BlobLink,
    Contract,
    ExpectedBlock,
    SigningKey,
    Task,
    Tree,
    open_update,
    write_blob,
    write_tensors,
)
from fedsilo_agent.guard.dropped_reply import DroppedReply
from fedsilo_agent.guard.signing import SignedUpdate, sign_reply
from fedsilo_agent.guard.task_source import VerifiedTask

BASE: Tree = {
    "w": np.linspace(-1, 1, 300_001, dtype=np.float32),
    "half": np.ones(3, np.float16),
    "none": np.zeros((0, 4), np.float32),
}
MODEL: Tree = {name: array + array.dtype.type(0.5) for name, array in BASE.items()}
CONTRACT = Contract(
    tuple(ExpectedBlock("model", name, array.shape, array.dtype.name) for name, array in BASE.items()),
    ("loss",),
)
PRIVACY = UpdatePrivacy(2.0, 1.0, 4, 3)
KEY = SigningKey.generate()


@dataclass
class Silo:
    """A silo's volume, with a task in the inbox and the trainer's reply in the drop."""

    volume: Volume
    task: Task

    @classmethod
    def make(cls, root: Path, model: Tree = MODEL) -> Silo:
        volume = Volume(root)
        volume.prepare()
        ref = write_blob(BASE, volume.blobs)
        links = (BlobLink("model", ref.digest, ref.length),)
        task = Task(
            "job",
            "silos/s",
            "r1",
            1,
            "train",
            "train",
            bytes(32),
            bytes.fromhex(CONTRACT.digest()),
            links,
            {},
        )
        silo = cls(volume, task)
        silo.reply(model)
        return silo

    def reply(self, model: Tree) -> None:
        drop = self.volume.drop / "r1"
        drop.mkdir(exist_ok=True)
        write_tensors(model, drop / "tensors")
        document = {"samples": 123, "metrics": {"loss": 0.25}, "support": {}}
        (drop / "reply.json").write_text(json.dumps(document))

    def sign(self, contract: Contract = CONTRACT) -> SignedUpdate:
        """Sign the reply as a guard does that was just started."""
        volume, task = self.volume, self.task
        side = UpdateNoiseGuardSide(PRIVACY, Secret(volume.guard_secret).generator)
        rules = ReleaseRules(ReplyLimits(5, figures=False), (side,))
        reply = DroppedReply(volume.drop / "r1", task, contract, volume.blobs, volume.outbox)
        return sign_reply(reply, self.path, VerifiedTask(task, bytes(32)), rules, KEY)

    @property
    def path(self) -> Path:
        return self.volume.outbox / "r1.update"

    def sent_tensor(self) -> np.ndarray:
        with open_update(self.path) as update:
            return np.array(update.tensor("w"))


def test_an_update_is_the_clipped_change_with_noise_and_tells_no_figures(tmp_path: Path) -> None:
    silo = Silo.make(tmp_path)
    signed = silo.sign()
    assert (signed.leaving.samples, signed.leaving.metrics, signed.mechanisms) == (
        0,
        {},
        (PRIVACY.of_one_example,),
    )
    with open_update(silo.path) as update:
        assert (update.header.samples, update.header.metrics) == (0, {})
        assert update.names("model") == list(BASE)
    noise = silo.sent_tensor().astype(np.float64) - BASE["w"] - 1 / np.sqrt(300_004)
    assert noise.std() == pytest.approx(1.0, rel=0.02)  # sigma C / sqrt(quorum)
    assert list(silo.volume.outbox.iterdir()) == [silo.path]


def test_a_guard_that_was_started_again_gives_the_same_bytes(tmp_path: Path) -> None:
    silo = Silo.make(tmp_path)
    first, content = silo.sign(), silo.path.read_bytes()
    silo.path.unlink()
    assert silo.sign().update == first.update
    assert silo.path.read_bytes() == content
    assert stat.S_IMODE(silo.volume.guard_secret.stat().st_mode) == 0o600
    assert silo.volume.guard_secret.parent == silo.volume.guard


def test_another_reply_gets_other_noise(tmp_path: Path) -> None:
    """The difference of two updates of one exchange must not be that of two replies."""
    silo = Silo.make(tmp_path)
    silo.sign()
    first = silo.sent_tensor()
    silo.reply({**MODEL, "half": MODEL["half"] + np.float16(1)})
    silo.sign()
    assert (first - silo.sent_tensor()).std() == pytest.approx(np.sqrt(2), rel=0.02)


def test_another_silo_gets_other_noise(tmp_path: Path) -> None:
    silos = [Silo.make(tmp_path / name) for name in ("one", "other")]
    for silo in silos:
        silo.sign()
    one, other = (silo.sent_tensor() for silo in silos)
    assert (one - other).std() == pytest.approx(np.sqrt(2), rel=0.02)


def test_a_model_in_the_inbox_that_was_changed_gives_nothing(tmp_path: Path) -> None:
    """From a model of somebody else's choice the change could be anything."""
    silo = Silo.make(tmp_path)
    (link,) = silo.task.blobs
    path = silo.volume.blobs / link.digest
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(FileDamaged, match="it is not the model of task r1"):
        silo.sign()
    assert list(silo.volume.outbox.iterdir()) == []


def test_a_secret_that_was_changed_gives_nothing(tmp_path: Path) -> None:
    silo = Silo.make(tmp_path)
    silo.sign()
    secret = silo.volume.guard_secret
    secret.write_text(secret.read_text().replace('"secret": "', '"secret": "0'))
    with pytest.raises(FileDamaged, match=r"secret\.json"):
        silo.sign()


def test_a_reply_that_is_no_change_of_the_tasks_model_is_refused(tmp_path: Path) -> None:
    silo = Silo.make(tmp_path, {name: array for name, array in MODEL.items() if name != "half"})
    with pytest.raises(PolicyRefused, match="missing-block: block half"):
        silo.sign()
    silo.reply(MODEL)
    silo.task = replace(silo.task, blobs=())
    with pytest.raises(PolicyRefused, match="hands out no model"):
        silo.sign()
    assert list(silo.volume.outbox.iterdir()) == []


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_reply_that_is_not_finite_is_refused(tmp_path: Path, value: float) -> None:
    weights = MODEL["w"].copy()
    weights[7] = value
    silo = Silo.make(tmp_path, {**MODEL, "w": weights})
    with pytest.raises(FedsiloError, match="not finite"):
        silo.sign()
