"""Two aggregators never write into one directory, and a full disk delays their start."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from fedsilo.errors import FedsiloError, ManifestInvalid, WorkdirConflict
from fedsilo_aggregator.config import load_config
from fedsilo_aggregator.startup import hold_directory, open_engine
from tests.integration.service.site import Site, federation
from tests.unit.conftest import FilledDisk


def test_a_directory_that_is_held_is_refused_with_the_name_of_its_holder(tmp_path: Path) -> None:
    holder = rf"{tmp_path}: process \d+ on \S+ has been using it"
    with (
        hold_directory(tmp_path),
        pytest.raises(WorkdirConflict, match=holder),
        hold_directory(tmp_path, patience=0),
    ):
        pass


def test_a_process_that_is_about_to_end_is_waited_for(tmp_path: Path) -> None:
    held, leave = threading.Event(), threading.Event()

    def hold_first() -> None:
        with hold_directory(tmp_path):
            held.set()
            leave.wait()

    holder = threading.Thread(target=hold_first)
    holder.start()
    held.wait()
    threading.Timer(0.3, leave.set).start()
    with hold_directory(tmp_path, patience=30):
        assert leave.is_set()
    holder.join()


def test_a_directory_that_was_left_can_be_had_again(tmp_path: Path) -> None:
    for _ in range(2):
        with hold_directory(tmp_path / "job", patience=0):
            assert (tmp_path / "job" / "lock").read_text().startswith("process ")


def test_a_directory_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (
        pytest.raises(FedsiloError, match=r"cannot be written .+; give user"),
        hold_directory(tmp_path / "file" / "job"),
    ):
        pass


def test_a_full_disk_delays_the_start(tmp_path: Path, filled_disk: FilledDisk) -> None:
    """The lock, the name of its holder and the job's directory are written before anything is served."""
    filled_disk.full = 3
    with hold_directory(tmp_path / "job"):
        pass
    assert filled_disk.full == 0
    assert (tmp_path / "job" / "lock").read_text().startswith("process ")


def test_two_silos_under_one_key_are_refused(tmp_path: Path) -> None:
    site = Site(tmp_path, federation(), port=1)
    path = site.workdir.aggregator / "config.json"
    document = json.loads(path.read_bytes())
    document["silos"][1]["publicKey"] = document["silos"][0]["publicKey"]
    path.write_text(json.dumps(document))
    with pytest.raises(
        ManifestInvalid, match=r"silos: .*: has one key for \S+ and \S+; give each silo its own"
    ):
        load_config(path)


def test_a_full_disk_delays_the_opening_of_the_engine(
    tmp_path: Path, filled_disk: FilledDisk, caplog: pytest.LogCaptureFixture
) -> None:
    site = Site(tmp_path, federation(), port=1)
    directory, secrets = site.workdir.aggregator, site.workdir.secrets
    filled_disk.full = 3
    engine = open_engine(
        load_config(directory / "config.json"), directory, secrets / "task-key.pem", tmp_path
    )
    assert filled_disk.full == 0 and engine.current_exchange is not None
    assert caplog.text.count("the disk is full") == 1


BEGIN = """
import json, sys
from pathlib import Path
from fedsilo_aggregator import __main__, http, metrics, rounds
from fedsilo_aggregator.config import load_config
from fedsilo_aggregator.startup import open_engine

directory, key = map(Path, sys.argv[1:])
engine = open_engine(load_config(directory / "config.json"), directory, key, directory)
status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
found = {
    "begins from": engine.state.refs()["model"].digest,
    "torch": "torch" in sys.modules,
    "MB": int(status["VmRSS"].split()[0]) / 1024,
    "files": sorted(path.name for path in directory.iterdir()),
}
import torch
found["threads"], found["deterministic"] = torch.get_num_threads(), torch.get_deterministic_debug_mode()
print(json.dumps(found))
"""


@pytest.mark.thorough
def test_an_aggregator_that_neither_scores_nor_learns_is_small_and_begins_from_the_same_weights(
    tmp_path: Path,
) -> None:
    ran = {}
    for name in ("apart", "here"):
        site = Site(tmp_path / name, federation(), port=1)
        program = [sys.executable, "-c", ("" if name == "apart" else "import torch\n") + BEGIN]
        environment = os.environ | {"OMP_NUM_THREADS": "2"}
        ended = subprocess.run(
            [*program, str(site.workdir.aggregator), str(site.workdir.secrets / "task-key.pem")],
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
            check=True,
        )
        ran[name] = json.loads(ended.stdout)
    apart, here = ran["apart"], ran["here"]
    assert (apart["torch"], here["torch"]) == (False, True)
    assert apart["MB"] <= 150 < here["MB"]
    for same in ("begins from", "files", "threads", "deterministic"):
        assert apart[same] == here[same]
    assert apart["threads"] == 1 and apart["deterministic"] == 2
