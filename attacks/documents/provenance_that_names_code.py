"""Provenance of jobs that the stranger has run and signed, whose specifications name functions of Python as model and
learning task, and files outside of the directory as public data; and such specifications under signatures of another's.

By: somebody whose provenance a person verifies and replays.

Must: `verify` imports nothing; `verify --replay` ends with one line that says what would run, or be read.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from attacks.handed_over import KEEP_UPDATES, HandedOver
from tests.federate import TASK_KEY, job_spec
from tests.public_examples import balanced_dataset
from tests.unit.verification.chains import Lines, edit_and_link

RUNS_ONCE = True

OWN_MODEL = "python:tests.unit.silo.networks:tied_network"

FORGED_CHANGES: tuple[dict[str, Any], ...] = (
    {"model": {"name": "python:beside:network"}},
    {"model": {"name": "python:subprocess:Popen", "config": {"args": "touch canary"}}},
    {"task": {"name": "python:beside:Task"}},
    {"method": {"name": "beside"}},
    {"method": {"name": "beside:Method"}},
)

REPLAY = ("verify", ".", "--replay")


def attack(target: HandedOver) -> None:
    at = target.result_of(
        job_spec("fedavg", 2, aggregator=KEEP_UPDATES, model={"name": OWN_MODEL, "config": {}})
    )
    target.expect_opened("verify", ".", at=at)
    target.expect_refused("would run tests.unit.silo.networks:tied_network", *REPLAY, at=at)
    for change in FORGED_CHANGES:
        at = target.copy()
        (at / "beside.py").write_text(target.planted_code)
        edit_and_link(at, partial(_change_spec, change), TASK_KEY)
        target.expect_refused("", *REPLAY, at=at, codes=(2, 9))
    _read_elsewhere(target)


def _change_spec(change: dict[str, Any], lines: Lines) -> None:
    lines[0]["spec"].update(change)


def _read_elsewhere(target: HandedOver) -> None:
    """Public data in a file that is none of the directory's."""
    images, labels = balanced_dataset((6,), 4)
    with target.secret.open("wb") as file:
        np.savez(file, images=images, labels=labels)
    held = {"name": "held", "loader": "npz", "config": {"path": str(target.secret)}}
    public = {"publicDataset": "held"}
    at = target.result_of(
        job_spec("feddf", 2, aggregator={**KEEP_UPDATES, "datasets": [held]}, aggregation=public)
    )
    target.expect_opened("verify", ".", at=at)
    target.expect_refused("is read from files", *REPLAY, at=at)
    target.expect_refused("lies outside of .", *REPLAY, "--data", ".", at=at)
