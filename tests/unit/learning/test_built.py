"""A network that is built in a process of its own is the same, and what is wrong with it is said alike."""

from __future__ import annotations

import errno
import sys
from pathlib import Path

import numpy as np
import pytest

from fedsilo.api.job import FederatedJobSpec
from fedsilo.errors import FedsiloError, MethodError
from fedsilo.learning.built import built_apart, built_here
from fedsilo.learning.models import initial_model
from fedsilo.wire import open_blob
from tests.federate import job_spec


def partitioned_spec() -> FederatedJobSpec:
    document = job_spec("fedavg", 1).model_dump(by_alias=True, exclude_none=True)
    document["model"]["parameters"] = {"local": ["classifier.*"]}
    return FederatedJobSpec.model_validate(document)


def test_it_is_the_same_network(tmp_path: Path) -> None:
    spec, weights = partitioned_spec(), tmp_path / "weights"
    assert built_apart(spec, weights) == built_here(spec)
    drawn = open_blob(weights).tree()
    expected = initial_model(spec)
    assert drawn.keys() == expected.keys()
    assert all(np.array_equal(drawn[name], array) for name, array in expected.items())


@pytest.mark.thorough
def test_a_factory_that_fails_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "of_test_built.py").write_text(
        "def network(input_shape, classes):\n    print('no answer')\n    raise ValueError('no such width')\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(str(tmp_path))
    document = job_spec("fedavg", 1).model_dump(by_alias=True, exclude_none=True)
    document["model"] = {"name": "python:of_test_built:network"}
    spec = FederatedJobSpec.model_validate(document)
    with pytest.raises(MethodError) as here:
        built_here(spec)
    with pytest.raises(MethodError) as apart:
        built_apart(spec)
    assert str(apart.value) == str(here.value) and "no such width" in str(apart.value)


def test_a_full_disk_is_one_and_a_killed_process_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec, program = job_spec("fedavg", 1), tmp_path / "python"
    monkeypatch.setattr(sys, "executable", str(program))
    answer = f'{{"errno": {errno.ENOSPC}, "message": "no space", "path": "/job/drawn-weights"}}'
    program.write_text(f"#!/bin/sh\ncat > /dev/null\necho '{answer}'\n")
    program.chmod(0o755)
    with pytest.raises(OSError, match="/job/drawn-weights") as full:
        built_apart(spec)
    assert full.value.errno == errno.ENOSPC
    program.write_text("#!/bin/sh\nkill -9 $$\n")
    with pytest.raises(FedsiloError, match=r"exit code -9.*more memory"):
        built_apart(spec)
