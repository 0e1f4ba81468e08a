"""docs/institution.md on a machine without Kubernetes: its commands join a real gateway, decide, and serve the page."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import urllib.request

from tests.integration.institution.hub import Consortium
from tests.pages import runs
from tests.ports import free_port
from tests.terminal import Terminal

AGENT = "digits-clinic-1a2b3c4d"
"""What the page calls the SiloAgent; its end is another in every consortium."""


@runs(
    "docs/institution.md",
    "fedsilo silo join invitation.yaml --dir /var/lib/fedsilo-silo",
    "fedsilo silo serve --dir /var/lib/fedsilo-silo",
    "fedsilo silo status --dir /var/lib/fedsilo-silo",
    "fedsilo silo approve --dir /var/lib/fedsilo-silo",
    'fedsilo silo approve digits-clinic-1a2b3c4d --dir /var/lib/fedsilo-silo --note "ethics vote 2026-17"',
    'fedsilo silo refuse digits-clinic-1a2b3c4d --dir /var/lib/fedsilo-silo --note "not this year" --yes',
    "fedsilo silo receipts --dir /var/lib/fedsilo-silo",
    "fedsilo silo dashboard --dir /var/lib/fedsilo-silo --port 8082",
    "fedsilo silo doctor --dir /var/lib/fedsilo-silo",
)
async def test_an_institution_joins_decides_and_watches(consortium: Consortium, terminal: Terminal) -> None:
    (join, serve, status, listed, approve, refuse, receipts, dashboard, doctor) = terminal.commands
    root = consortium.directory.root
    here = {"/var/lib/fedsilo-silo": str(root)}
    terminal.environment["OMP_NUM_THREADS"] = "1"

    async def type_command(command: str, **instead: str) -> str:
        return await asyncio.to_thread(terminal.type, command, here | instead)

    async with consortium.gateway():
        shutil.copy(consortium.invite(), terminal.folder / "invitation.yaml")
        said = await type_command(join)
        assert f"fingerprint {consortium.directory.signing_key().verify_key.fingerprint}" in said
        consortium.accept()
        consortium.offer({"manualApproval": True})
        with terminal.start_command(serve, here) as serving:
            consortium.propose()
            await consortium.wait_reported("ApprovalPending")
            name = {AGENT: consortium.agent.name}
            assert name[AGENT] in await type_command(status)
            assert name[AGENT] in await type_command(listed)
            assert "has refused job" in await type_command(refuse, **name)
            refused = await consortium.wait_reported("Refused")
            assert "not this year" in refused["message"]
            said = await asyncio.to_thread(lambda: terminal.type(approve, here | name, answer="y"))
            assert "has approved job" in said
            admitted = await consortium.wait_reported("Admitted")
            assert admitted["decision"]["decidedBy"]
            assert "nothing has left" in await type_command(receipts)
            assert "ok" in await type_command(doctor)
            await asyncio.to_thread(see_the_page, terminal, dashboard, here)
            assert serving.poll() is None


def see_the_page(terminal: Terminal, command: str, here: dict[str, str]) -> None:
    """The page that the command serves says what was decided."""
    port = str(free_port())
    with terminal.start_command(command, here | {"8082": port}) as running:
        assert running.stdout is not None
        found = re.fullmatch(rf"dashboard (http://127\.0\.0\.1:{port}/)\n", running.stdout.readline())
        assert found
        with urllib.request.urlopen(f"{found[1]}api/silo") as response:
            page = json.loads(response.read())
        assert {item["type"] for item in page["silos"][0]["conditions"]} == {"Served", "HubReached"}
        assert [row["state"] for row in page["agents"]] == ["Admitted"]
        assert page["waiting"] == []
