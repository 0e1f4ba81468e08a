"""`fedsilo run` finds a module in the current directory, and its files stand in for nothing of Python's own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.local.test_own_code import write_job

pytestmark = pytest.mark.thorough


def test_processes_of_a_run_find_what_one_process_finds(tmp_path: Path) -> None:
    write_job(tmp_path)
    for name in ("json.py", "queue.py"):
        (tmp_path / name).write_text("raise AssertionError('imported in place of the module of Python')\n")
    program = Path(sys.executable).with_name("fedsilo")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    digests = set[str]()
    for options in ([], ["--in-process"]):
        command = [str(program), "run", "-f", "job.yaml", "--json", *options]
        done = subprocess.run(
            [*command, "--workdir", f"run{len(options)}"],
            cwd=tmp_path,
            env=environment | {"OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        digests.add(json.loads(done.stdout.splitlines()[-1])["model"]["sha256"])
    assert len(digests) == 1
