"""The commands of docs/silo-machine.md, typed one after the other against a real gateway."""

from __future__ import annotations

import asyncio
import json
import re
import urllib.request

import pytest

from tests.integration.institution.hub import Consortium
from tests.pages import runs
from tests.ports import free_port
from tests.terminal import Terminal

DIRECTORY, AGENT = "/var/lib/fedsilo-silo", "digits-clinic-1a2b3c4d"
"""The directory and the SiloAgent of the page; the agent's name ends otherwise in every consortium."""


@pytest.mark.thorough
@runs("docs/silo-machine.md")
async def test_the_commands_of_the_page_run(terminal: Terminal, consortium: Consortium) -> None:
    here = {DIRECTORY: str(consortium.directory.root)}
    join, serve, status, listed, approve, refuse, receipts, dashboard, doctor, rotate, leave = (
        terminal.commands
    )
    terminal.environment["OMP_NUM_THREADS"] = "1"

    async def type_(command: str, answer: str | None = None, **instead: str) -> str:
        return await asyncio.to_thread(lambda: terminal.type(command, here | instead, answer=answer))

    async with consortium.gateway():
        consortium.invite().rename(terminal.folder / "invitation.yaml")
        said = await type_(join)
        assert f"fingerprint {consortium.directory.signing_key().verify_key.fingerprint}" in said
        consortium.accept()
        assert "manualApproval: true" in consortium.directory.silo_file.read_text()
        consortium.offer({"manualApproval": True})
        with terminal.start_command(serve, here) as serving:
            consortium.propose()
            await consortium.wait_reported("ApprovalPending")
            assert "ApprovalPending" in await type_(status)
            name = {AGENT: consortium.agent.name}
            assert consortium.agent.name in await type_(listed)
            assert "has approved" in await type_(approve, "y", **name)
            admitted = await consortium.wait_reported("Admitted")
            assert admitted["decision"]["decidedBy"]
            assert "nothing has left" in await type_(receipts)
            await asyncio.to_thread(see_the_page, terminal, dashboard, here)
            assert "ok" in await type_(doctor)
            assert "has refused" in await type_(refuse, **name)
            refused = await consortium.wait_reported("Refused")
            assert "not this year" in refused["message"]
            assert serving.poll() is None
        assert "fingerprint" in await type_(rotate)
        assert "has left" in await type_(leave)


def see_the_page(terminal: Terminal, command: str, here: dict[str, str]) -> None:
    """The page that the command serves shows the decision about the job."""
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
