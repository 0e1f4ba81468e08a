"""`fedsilo run` on a disk that is full: it says so, waits, and goes on with space, to the model of any other run."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.integration.local.manifest import silos, write
from tests.integration.local.runs import ENVIRONMENT, PATIENCE_SECONDS, command, run, wait_until
from tests.integration.service.test_full_disk import permitted

pytestmark = pytest.mark.thorough

FULL_DISK_COMMAND = (
    'mount -t tmpfs -o size=60m tmpfs "$0" && { cat /dev/zero > "$0/ballast" 2> /dev/null; exec "$@"; }'
)
"""Runs a command with a small file system of its own over a directory, in which nothing is free."""


@pytest.mark.parametrize("options", [[], ["--in-process"]], ids=["processes", "one process"])
def test_a_run_waits_for_space_and_goes_on(options: list[str], tmp_path: Path) -> None:
    mounted = tmp_path / "small"
    mounted.mkdir()
    if not permitted(mounted):
        pytest.skip("this system lets neither root nor a user mount a file system in a namespace (unshare)")
    manifest = write(tmp_path / "digits.yaml", silos("north"), training={"rounds": 1})
    namespace = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--mount"]
    begun = command(manifest, mounted / "run", *options)
    said = tmp_path / "said"
    with (
        said.open("w") as output,
        subprocess.Popen(
            [*namespace, "sh", "-c", FULL_DISK_COMMAND, str(mounted), *begun],
            env=ENVIRONMENT,
            stdout=output,
            stderr=subprocess.STDOUT,
        ) as process,
    ):
        wait_until(
            lambda: "the disk is full; the run goes on when there is space" in said.read_text(), "the word"
        )
        assert process.poll() is None
        Path(f"/proc/{process.pid}/root{mounted}/ballast").unlink()
        assert process.wait(PATIENCE_SECONDS) == 0, said.read_text()
    lines = said.read_text()
    assert "there is space again; the run goes on" in lines
    assert "Traceback" not in lines
    digest = run(manifest, tmp_path / "elsewhere", *options).document["model"]["sha256"]
    assert f"sha256  {digest}" in lines
