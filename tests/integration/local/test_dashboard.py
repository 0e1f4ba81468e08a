"""The page of `fedsilo run --dashboard`: it is served while a run goes on, and says how the run ended."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import subprocess
import urllib.request
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.integration.local.conftest import Launch
from tests.integration.local.manifest import silos, small_quickstart, write
from tests.integration.local.runs import PATIENCE_SECONDS
from tests.pages import runs
from tests.terminal import Terminal


def address(process: subprocess.Popen[str]) -> str:
    """Where the run says that its dashboard is; with `--json` that is no part of the output."""
    assert process.stderr is not None
    found = re.fullmatch(r"dashboard (http://127\.0\.0\.1:\d+/)\n", process.stderr.readline())
    assert found is not None
    return found[1]


async def follow(url: str) -> list[dict[str, Any]]:
    """All documents of the job, as an open page gets them, up to the end of the run."""
    found: list[dict[str, Any]] = []
    headers = {"Prefer": "wait=20"}
    async with aiohttp.ClientSession() as session:
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while True:
                    async with session.get(f"{url}api/jobs/federation/digits", headers=headers) as response:
                        if response.status == 200:
                            found.append(await response.json())
                            headers["If-None-Match"] = response.headers["ETag"]
        except aiohttp.ClientError:
            return found


@pytest.mark.thorough
async def test_an_open_page_follows_a_run_to_its_end(tmp_path: Path, launch: Launch) -> None:
    # Rounds enough that it is still running when the page asks again.
    manifest = write(tmp_path / "digits.yaml", silos("north", "east"), training={"rounds": 20})
    process = launch(manifest, tmp_path / "run", "--dashboard")
    documents = await follow(address(process))
    out, _ = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0
    outcome = json.loads(out.splitlines()[-1])
    states = [document["state"] for document in documents]
    assert states == sorted(states, key=["Pending", "Starting", "Running", "Complete"].index)
    assert {"Running", "Complete"} <= set(states)
    last = documents[-1]
    assert last["receipts"]["model"]["sha256"] == outcome["model"]["sha256"]
    history = (tmp_path / "run" / "history.jsonl").read_text().splitlines()
    digests = {digest for line in history for digest in json.loads(line)["updates"].values()}
    assert {item["digest"] for item in last["receipts"]["updates"]} == digests
    assert {name: points[-1][1] for name, points in _curves(last, "score").items()} == outcome["metrics"]
    assert last["contract"]["sentence"] == "This job receives: models of 1,210 parameters."


def _curves(document: dict[str, Any], group: str) -> dict[str, list[list[float]]]:
    return {curve["name"]: curve["points"] for curve in document["curves"] if curve["group"] == group}


async def test_an_interrupted_run_ends_its_dashboard(
    steady_manifest: Path, tmp_path: Path, launch: Launch
) -> None:
    process = launch(steady_manifest, tmp_path / "run", "--dashboard")
    following = asyncio.ensure_future(follow(address(process)))
    while not (tmp_path / "run" / "processes.json").exists():
        await asyncio.sleep(0.05)
    process.send_signal(signal.SIGINT)
    documents = await following
    assert process.wait(PATIENCE_SECONDS) == 130
    assert documents[-1]["state"] == "Suspended"
    assert documents[-1]["waiting"]["message"] == "The run was interrupted."


@runs("docs/dashboard.md", "fedsilo run -f examples/quickstart.yaml --dashboard")
def test_the_first_line_says_where_the_page_is(terminal: Terminal) -> None:
    small_quickstart(terminal.folder)
    (command,) = terminal.commands
    with terminal.start_command(command) as running:
        assert running.stdout is not None
        found = re.fullmatch(r"dashboard (http://127\.0\.0\.1:\d+/)\n", running.stdout.readline())
        assert found is not None
        with urllib.request.urlopen(found[1], timeout=PATIENCE_SECONDS) as response:
            assert b"static/app.js" in response.read()
