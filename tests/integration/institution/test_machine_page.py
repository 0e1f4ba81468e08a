"""docs/silo-machine.md: its commands, typed one after the other against a real gateway."""

from __future__ import annotations

import asyncio
from functools import partial

from fedsilo.institution.directory import SiloDirectory
from tests.integration.institution.hub import Consortium
from tests.pages import runs
from tests.terminal import Terminal

PLACEHOLDER = "digits-north-1a2b3c4d"


@runs("docs/silo-machine.md")
async def test_the_commands_of_the_page_run(terminal: Terminal, consortium: Consortium) -> None:
    consortium.directory = SiloDirectory(terminal.folder / "clinic")
    join, serve, status, listed, approve, refuse, rotate, leave = terminal.commands

    async def type_(command: str, **options: object) -> str:
        return await asyncio.to_thread(partial(terminal.type, command, **options))  # type: ignore[arg-type]

    async with consortium.gateway():
        consortium.invite().rename(terminal.folder / "invitation.yaml")
        assert "fingerprint" in await type_(join)
        consortium.accept()
        assert "manualApproval: true" in consortium.directory.silo_file.read_text()
        consortium.offer({"manualApproval": True})
        with terminal.started(serve):
            consortium.propose()
            await consortium.reported("ApprovalPending")
            assert "ApprovalPending" in await type_(status)
            name = {PLACEHOLDER: consortium.agent.name}
            assert consortium.agent.name in await type_(listed)
            assert "has approved" in await type_(approve, instead=name, answer="y")
            await consortium.reported("Admitted")
            assert "has refused" in await type_(refuse, instead=name)
            await consortium.reported("Refused")
        assert "fingerprint" in await type_(rotate)
        assert "has left" in await type_(leave)
