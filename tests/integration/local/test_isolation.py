"""Code of the job or of the institution that runs in a trainer reaches no network, no key and no other silo."""

from __future__ import annotations

import base64
import json
import os
import socket
from pathlib import Path

import numpy as np
import pytest

from fedsilo.files.json_files import write_json
from tests.integration.local.conftest import Launch
from tests.integration.local.manifest import python, silo, silos, write
from tests.integration.local.memory import masked_secret
from tests.integration.local.runs import ENVIRONMENT, end, run, wait_until
from tests.namespaces import isolation_permitted
from tests.paths import ROOT

PR_CAPBSET_DROP, CAP_SYS_ADMIN = 24, 21


@pytest.mark.skipif(not isolation_permitted(), reason="this system permits no network namespaces")
def test_a_trainer_sees_neither_the_network_nor_keys_nor_other_silos(tmp_path: Path) -> None:
    run_directory = tmp_path / "run"
    hidden = [
        str(run_directory / name)
        for name in (
            "silos/north/guard",
            "silos/north/audit",
            "silos/east",
            "aggregator",
            "aggregator-secrets",
        )
    ]
    inbox = str(run_directory / "silos/north/inbox")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        spy = python("look_around", port=listener.getsockname()[1], paths=[*hidden, inbox])
        manifest = write(tmp_path / "digits.yaml", [silo("north", spy), *silos("east")])
        ended = run(manifest, run_directory)
    assert (ended.code, ended.document["reason"]) == (4, "DataInvalid")
    said = said_by_the_spy(run_directory)
    still_covered = {f"umount {path}": -1 for path in [*hidden, inbox]}
    seen: dict[str, list[str]] = {path: [] for path in hidden}
    seen[inbox] = ["blobs"]
    assert json.JSONDecoder().raw_decode(said)[0] == {"network": "none"} | seen | still_covered
    assert (run_directory / "silos/north/guard/key.pem").exists()


def said_by_the_spy(run_directory: Path) -> str:
    """What the loader raised: it stays in the silo's own log."""
    log = (run_directory / "logs" / "north-trainer.log").read_text()
    return log.partition("raised ValueError: ")[2]


@pytest.mark.thorough
def test_a_forked_trainer_holds_nothing_of_another_silo(tmp_path: Path, launch: Launch) -> None:
    """All trainers fork from one process; what one of them has must not have come from there."""
    run_directory, question = tmp_path / "run", tmp_path / "question.json"
    images = np.random.default_rng(0).random((40, 8, 8), dtype=np.float32)
    np.savez(tmp_path / "east.npz", images=images, labels=np.arange(40) % 10)
    spy = {"loader": "python:tests.integration.local.memory:search", "config": {"question": str(question)}}
    east = silo("east", {"loader": "npz", "config": {"path": "east.npz"}})
    process = launch(write(tmp_path / "digits.yaml", [silo("north", spy), east]), run_directory, cold=True)
    # East has its key, its data and a trainer that has read them before north begins to look.
    wait_until((run_directory / "silos/east/drop/signature.json").exists, "a trainer with data")
    keys = {
        name: run_directory / path
        for name, path in (
            ("east's key", "silos/east/guard/key.pem"),
            ("north's key", "silos/north/guard/key.pem"),
            ("task key", "aggregator-secrets/task-key.pem"),
            ("server key", "aggregator-secrets/server.key"),
        )
    }
    secrets = {name: path.read_bytes().splitlines()[1] for name, path in keys.items()}
    secrets |= {f"{name}, decoded": base64.b64decode(text)[-24:] for name, text in secrets.items()}
    secrets["east's data"] = images[7].tobytes()
    write_json(question, {name: masked_secret(secret) for name, secret in secrets.items()})
    ended = end(process, run_directory)
    assert (ended.code, ended.document["reason"]) == (4, "DataInvalid")
    said = said_by_the_spy(run_directory)
    found = json.JSONDecoder().raw_decode(said)[0]
    assert found["memory"] == ["planted"]
    pipe, *logs = found["descriptors"]
    log_file = run_directory / "logs/north-trainer.log"
    assert pipe.startswith("0 pipe:") and logs == [f"1 {log_file}", f"2 {log_file}"]
    assert set(found["environment"]) <= set(ENVIRONMENT)
    assert not [path for path in found["maps"] if str(tmp_path) in path]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give up the right to make namespaces for good")
@pytest.mark.thorough
def test_where_the_system_permits_no_isolation_the_run_reports_it(tmp_path: Path) -> None:
    # Every Python process gives the right up as it starts, as in a container that was never given it.
    (tmp_path / "sitecustomize.py").write_text(
        f"import ctypes\nctypes.CDLL(None).prctl({PR_CAPBSET_DROP}, {CAP_SYS_ADMIN}, 0, 0, 0)\n"
    )
    manifest = write(tmp_path / "digits.yaml", silos("north"), training={"rounds": 1})
    ended = run(manifest, tmp_path / "run", environment={"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"})
    assert ended.code == 0, ended.err
    assert "trainers: north: not isolated: this system permits no network namespace (" in ended.err
