"""The commands of docs/silo-machine.md, typed one after the other against a real gateway."""

from __future__ import annotations

import asyncio

from tests.integration.institution.hub import Consortium
from tests.pages import runs
from tests.terminal import Terminal

DIRECTORY, AGENT = "/var/lib/fedsilo-silo", "digits-clinic-1a2b3c4d"
"""What the page calls them."""


@runs("docs/silo-machine.md")
async def test_the_commands_of_the_page_run(terminal: Terminal, consortium: Consortium) -> None:
    here = {DIRECTORY: str(consortium.directory.root)}
    join, serve, status, listed, approve, refuse, rotate, leave = terminal.commands

    async def type_(command: str, answer: str | None = None, **instead: str) -> str:
        return await asyncio.to_thread(lambda: terminal.type(command, here | instead, answer=answer))

    async with consortium.gateway():
        consortium.invite().rename(terminal.folder / "invitation.yaml")
        assert "fingerprint" in await type_(join)
        consortium.accept()
        assert "manualApproval: true" in consortium.directory.silo_file.read_text()
        consortium.offer({"manualApproval": True})
        with terminal.start_command(serve, here):
            consortium.propose()
            await consortium.wait_reported("ApprovalPending")
            assert "ApprovalPending" in await type_(status)
            name = {AGENT: consortium.agent.name}
            assert consortium.agent.name in await type_(listed)
            assert "has approved" in await type_(approve, "y", **name)
            await consortium.wait_reported("Admitted")
            assert "has refused" in await type_(refuse, **name)
            await consortium.wait_reported("Refused")
        assert "fingerprint" in await type_(rotate)
        assert "has left" in await type_(leave)
