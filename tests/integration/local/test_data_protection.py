"""Receipts show what docs/data-protection.md says: an officer finds what the model was made from, and nothing else."""

from __future__ import annotations

import json
import re

from tests.integration.local.manifest import small_quickstart
from tests.pages import blocks, runs
from tests.terminal import Terminal

PAGE = "docs/data-protection.md"


@runs("docs/data-protection.md")
def test_the_receipts_are_the_updates_of_the_model_and_no_others(terminal: Terminal) -> None:
    small_quickstart(terminal.folder)
    kinds, listed, as_json, verified = terminal.commands
    assert "class_means" in terminal.type(kinds)
    run = Terminal(terminal.folder, ["fedsilo run -f examples/quickstart.yaml --workdir runs/first"])
    run.type(run.commands[0])

    ours = {"/var/lib/fedsilo-silo": "runs/first"}
    said = terminal.type(listed, ours)
    pattern = r"silo north: 1 update, \d+ bytes; the audit log holds, \d+ lines, the last one's hash is \w+"
    assert re.match(pattern, said)
    (shown,) = blocks(PAGE, "text")
    assert [line.split()[:4] for line in shown.splitlines()[1:]] == [
        line.split()[:4] for line in said.splitlines()[1:]
    ]
    (silo,) = json.loads(terminal.type(as_json, ours))["silos"]
    folder = terminal.folder / "runs" / "first"
    agent = json.loads((folder / "silos" / "north" / "agent.json").read_text())
    key = {"silo-clinic/clinic=ed25519:...": f"silo-north/north={agent['spec']['trust']['publicKey']}"}
    told = terminal.type(verified, {"verify digits": "verify runs/first"} | key)
    assert "keys pinned with --key:\n  silo-north/north" in told

    model = json.loads((folder / "aggregator" / "model.json").read_text())
    updates = json.dumps(model["updates"])
    digests = [departure["digest"] for departure in silo["departures"]]
    assert digests
    assert all(digest in updates for digest in digests)
    assert len(re.findall(r"[0-9a-f]{64}", updates)) == len(digests)
