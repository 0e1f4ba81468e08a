"""A trainer that foreign code holds for good ends itself, and says so first."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from fedsilo.errors import MethodError
from fedsilo.files.json_files import write_with_digest
from fedsilo.learning.data_parallel import SINGLE_PROCESS_GROUP
from fedsilo.methods.interface import Exchange, Phase, Reply, SiloTask
from fedsilo.methods.state import State
from fedsilo.silo.volume import Volume
from fedsilo.wire import write_blob
from fedsilo_agent.trainer import __main__ as trainer_module
from fedsilo_agent.trainer.loop import Trainer
from fedsilo_agent.trainer.mailbox import Mailbox
from tests.federate import job_spec

TASK = "r00001-train-north"


class Deaf:
    """A function that nothing interrupts."""

    def run(self, task: SiloTask, private: State) -> Reply:
        while True:
            threading.Event().wait()


def test_the_limit_is_within_the_rounds_deadline() -> None:
    def limit(deadline: str, trainer: str | None) -> float | None:
        job = job_spec("fedavg", 1, participation={"roundDeadline": deadline}, training={"trainer": trainer})
        runner: Any = SimpleNamespace(context=SimpleNamespace(spec=job, group=SINGLE_PROCESS_GROUP))
        return trainer_module._limit(runner)

    assert limit("10m", None) is None
    assert limit("10m", "python:own:train") == 540 + 10
    assert limit("20s", "python:own:train") == 18 + 1


def test_it_ends_itself_with_the_reason_in_the_drop(tmp_path: Path) -> None:
    volume = Volume(tmp_path)
    volume.prepare()
    digest = write_blob({"w": np.ones(2, np.float32)}, volume.blobs).digest
    task = {"task": TASK, "step": "train", "phase": "train", "round": 1, "settings": {}, "acknowledged": None}
    write_with_digest(volume.task, task | {"trees": {"model": digest}})
    mailbox = Mailbox(volume, [Exchange(Phase("train", 1, "train"), 1, 1, 1)])
    child = os.fork()
    if child == 0:
        runner: Any = Deaf()
        no_personal_model: Any = None
        Trainer(mailbox, runner, no_personal_model, limit=0.05).answer(TASK)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == MethodError.exit_code
    said = json.loads((volume.drop / "failed.json").read_bytes())
    assert said["reason"] == "MethodError"
    assert f"task {TASK}: spec.training.trainer did not return within 0.05 s" in said["message"]
