"""A job that has ended, with its updates kept; tests damage copies of it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.federate import federate, job_spec
from tests.unit.engine.synthetic import synthetic_runners

SPEC = job_spec("fedavg", 3, rounds=2, aggregator={"keepUpdates": True}, participation={"minSilos": 2})


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.fixture(scope="session")
def finished_job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory of an aggregator; silo s2 failed in round 2."""
    root = tmp_path_factory.mktemp("finished")
    federate(root, SPEC, synthetic_runners(SPEC, {"silos/s2": [2]}))
    return root / "aggregator"


@pytest.fixture
def directory(finished_job: Path, tmp_path: Path) -> Path:
    """A copy of it, to be changed."""
    return Path(shutil.copytree(finished_job, tmp_path / "aggregator"))
