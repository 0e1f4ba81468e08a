"""The trainer answers or says why not, whatever its inbox, its method or its data do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsilo.durable import write_json
from fedsilo.engine.volume import Volume
from fedsilo.methods.interface import Exchange, Phase, Reply, SiloTask
from fedsilo.methods.state import State
from fedsilo.wire import write_blob
from fedsilo_agent.trainer.__main__ import _answer
from fedsilo_agent.trainer.desk import Desk

TASK = "r00001-train-north"


class Method:
    """A method that replies what it is told to, or raises it."""

    def __init__(self, reply: Reply | Exception) -> None:
        self.reply = reply

    def run(self, task: SiloTask, private: State) -> Reply:
        if isinstance(self.reply, Exception):
            raise self.reply
        return self.reply


@pytest.fixture
def volume(tmp_path: Path) -> Volume:
    volume = Volume(tmp_path)
    volume.prepare()
    return volume


def answer(volume: Volume, reply: Reply | Exception, digest: str = "", round: int = 1) -> tuple[str, Any]:
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
    write_json(volume.task, document | {"trees": {"model": digest}})
    desk = Desk(volume, [Exchange(Phase("train", 1, "train"), 1, 1, 1)])
    runner: Any = Method(reply)
    _answer(desk, runner, TASK)
    [path] = (volume.drop / TASK).glob("*.json")
    assert desk.current() is None
    return path.name, json.loads(path.read_bytes())


def test_numbers_of_numpy_are_numbers(volume: Volume) -> None:
    reply = Reply({}, np.int64(7), {"loss": np.float32(0.5)}, {"mean/1": np.int32(9)})  # type: ignore[arg-type, dict-item]
    assert answer(volume, reply) == (
        "reply.json",
        {"samples": 7, "metrics": {"loss": 0.5}, "support": {"mean/1": 9}},
    )


def test_a_blob_that_holds_no_tensors_is_said(volume: Volume) -> None:
    (volume.blobs / "junk").write_bytes(b"junk")
    name, said = answer(volume, Reply(), "junk")
    assert (name, said["reason"]) == ("failed.json", "ProtocolProblem")


def test_a_round_that_the_job_does_not_have_is_said(volume: Volume) -> None:
    name, said = answer(volume, Reply(), round=9)
    assert (name, said["reason"]) == ("failed.json", "MethodError")


@pytest.mark.parametrize("reply", [Reply(samples="many"), ZeroDivisionError("nothing to divide")])  # type: ignore[arg-type]
def test_a_defect_of_the_method_is_said(volume: Volume, reply: Reply | Exception) -> None:
    name, said = answer(volume, reply)
    assert (name, said["reason"]) == ("failed.json", "TrainerError")
