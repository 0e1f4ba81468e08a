"""The page of an institution without Kubernetes, from its directory alone, whether anybody serves the silo or not.

What has left comes from the audit logs themselves, each of which is verified again whenever it has grown.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any, Never

from fedsilo.api.conditions import ConditionType
from fedsilo.api.observed import Object, uid_of
from fedsilo.dashboard.feed import Feed
from fedsilo.dashboard.institution import InstitutionSnapshot
from fedsilo.dashboard.server import INSTITUTION, LocalAccess, serving
from fedsilo.errors import FedsiloError
from fedsilo.hub.contact import ContactReason
from fedsilo.institution.budgets import BudgetReader
from fedsilo.institution.deciding import records
from fedsilo.institution.directory import SiloDirectory
from fedsilo.institution.overview import overview
from fedsilo.institution.silo_file import read_silo
from fedsilo.silo.audit_chain import AuditBroken
from fedsilo.silo.receipts import receipts_document, receipts_of
from fedsilo.silo.shared_data import shared_data

log = logging.getLogger("fedsilo.silo")

HOST = "127.0.0.1"

POLL_SECONDS = 1.0
"""Time between two looks at the directory."""


class DirectorySource:
    """A feed of what a silo's directory says.

    :raises FedsiloError: when the directory is no silo's.
    """

    def __init__(self, directory: SiloDirectory) -> None:
        self._directory = directory
        self._logs: dict[str, tuple[int, Object]] = {}
        self._budgets = BudgetReader(directory)
        self._snapshot = self._read()
        self.feed = Feed(lambda: self._snapshot)

    async def run(self) -> Never:
        """Look at the directory again and again, until cancelled."""
        while True:
            self.look()
            await asyncio.sleep(POLL_SECONDS)

    def look(self) -> None:
        """Look at the directory now."""
        try:
            found = self._read()
        except (OSError, FedsiloError) as error:
            log.warning("dashboard: %s", error)
            return
        if found != self._snapshot:
            self._snapshot = found
            self.feed.notify()

    def _read(self) -> InstitutionSnapshot:
        agents, broken = records(self._directory), list[str]()
        receipts = dict(self._receipts(agents, broken))
        return InstitutionSnapshot(
            place="machine",
            silos=[self._silo(overview(self._directory), agents, broken)],
            agents=agents,
            receipts=receipts,
            directory=str(self._directory.root),
        )

    def _silo(self, seen: dict[str, Any], agents: list[Object], broken: list[str]) -> Object:
        """The Silo as a cluster would have it.

        :param broken: what is wrong with audit logs, and with ledgers.
        """
        namespace, _, name = seen["silo"].partition("/")
        spec: Object = {}
        fault, shared = seen["fault"], list[str]()
        try:
            silo = read_silo(self._directory, seen["silo"], seen["publicKey"])
            spec = silo.spec.model_dump(mode="json", by_alias=True, exclude_none=True)
            shared = list(shared_data(silo, self._directory.root, here=True))
        except (OSError, FedsiloError) as error:
            fault = fault or " ".join(str(error).split())
        budgets: list[Object] = []
        try:
            spent = self._budgets.read(agents, datetime.now(UTC))
            budgets = [one.model_dump(mode="json", by_alias=True) for one in spent]
        except FedsiloError as error:
            broken.append(str(error))
        return {
            "metadata": {"namespace": namespace, "name": name},
            "spec": spec,
            "status": {
                "privacyBudget": budgets,
                "publicKey": seen["publicKey"],
                "hub": {"url": seen["hub"]["url"]},
                "conditions": list(_conditions(seen, fault, broken, shared)),
            },
        }

    def _receipts(self, agents: list[Object], broken: list[str]) -> Iterator[tuple[str, Object]]:
        for agent in agents:
            uid = uid_of(agent)
            volume = self._directory.volume(uid)
            try:
                size = (volume.audit / "log.jsonl").stat().st_size
                if self._logs.get(uid, (-1, {}))[0] != size:
                    self._logs[uid] = size, receipts_document(receipts_of(volume.root))
                yield uid, self._logs[uid][1]
            except FileNotFoundError:
                continue
            except FedsiloError as error:
                broken.append(str(error))


def _conditions(seen: dict[str, Any], fault: str, broken: list[str], shared: list[str]) -> Iterator[Object]:
    """Whether somebody serves the silo, the hub is reached, and the institution's files are whole."""
    serving, contact = seen["serving"], seen["hub"]["contact"]
    if seen["hasLeft"]:
        text = (
            "The silo has left the hub: to take part again, ask its office for an invitation, and run fedsilo silo "
            f"join INVITATION --dir {seen['directory']}."
        )
        yield _condition("Served", False, ContactReason.LEFT, text, None)
    elif serving is None:
        text = f"Nobody serves the silo: run fedsilo silo serve --dir {seen['directory']}."
        yield _condition("Served", False, "NotServed", text, None)
    else:
        text = f"Process {serving['pid']} serves the silo."
        yield _condition("Served", True, "Served", text, serving["since"])
    if fault:
        yield _condition("SiloFileRead", False, "ManifestInvalid", fault, None)
    for message in shared:
        yield _condition(ConditionType.BUDGETS_SEPARATE, False, "SameData", f"{message}.", None)
    for message in broken:
        yield _condition("AuditLogWhole", False, AuditBroken.reason, f"{message}.", None)
    # What a process has found that is no more says nothing about now.
    if serving is not None and contact is not None:
        yield _condition(
            "HubReached", contact["reached"], contact["reason"], contact["message"], contact["since"]
        )


def _condition(name: str, holds: bool, reason: str, message: str, since: str | None) -> Object:
    return {
        "type": name,
        "status": "True" if holds else "False",
        "reason": reason,
        "message": message,
        "lastTransitionTime": since,
    }


@asynccontextmanager
async def institution_page(directory: SiloDirectory, port: int) -> AsyncIterator[str]:
    """Serve the page on this machine until the end of the block; yields its address.

    :param port: 0 lets the system choose.
    :raises FedsiloError: when the directory is no silo's.
    :raises OSError: when the port is taken.
    """
    source = DirectorySource(directory)
    async with serving(source.feed, LocalAccess(), HOST, port, views=INSTITUTION) as found:
        looking = asyncio.create_task(source.run())
        try:
            yield f"http://{HOST}:{found}/"
        finally:
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)
