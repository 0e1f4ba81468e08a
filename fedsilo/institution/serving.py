"""A silo that serves: it follows its hub, says what it decides, and looks after guards and trainers until told to stop.

Two things go on beside each other in one process: the hub is followed (`fedsilo.hub.poller`), and every moment what
is to be done here is done. Neither waits for the other, so that a hub that is gone holds up nothing here.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Never

from typing_extensions import override

from fedsilo.api.observed import Object
from fedsilo.api.timestamps import timestamp
from fedsilo.errors import ManifestInvalid
from fedsilo.files.durable import is_disk_full
from fedsilo.files.json_files import write_json, write_with_digest
from fedsilo.http.probes import probing
from fedsilo.hub.client import hub_client
from fedsilo.hub.contact import Contact
from fedsilo.hub.mirror import Mirror
from fedsilo.hub.poller import HubPoller, Institution, Membership
from fedsilo.institution.directory import SiloDirectory, SiloIdentity
from fedsilo.institution.executor import Executor
from fedsilo.institution.metrics import exposition
from fedsilo.institution.silo_file import WatchedSilo
from fedsilo.process import run_until_signalled, version
from fedsilo.silo.offer import offers, sign_offer
from fedsilo.wire import SigningKey

log = logging.getLogger("fedsilo.silo")

BUSY_SECONDS, IDLE_SECONDS = 0.1, 0.5
"""Time between two looks at processes and files: while guards and trainers run, and else."""


async def serve_until_signalled(
    directory: SiloDirectory, member: SiloIdentity, metrics_port: int | None = None
) -> None:
    """Serve until SIGTERM or SIGINT; whatever was started has ended then.

    :param metrics_port: port of `/healthz`, `/readyz` and `/metrics`; none of these when None.
    :raises FedsiloError: when the silo has left, or the directory or `silo.yaml` is not as it must be.
    """
    if directory.leaving_file.exists():
        raise ManifestInvalid(
            f"{directory.root}: silo {member.silo} has left the hub at {member.hub.url}; to take part again, ask its "
            "office for an invitation and run fedsilo silo join"
        )
    await run_until_signalled(_serve(directory, member, metrics_port))
    log.info("silo %s serves no more", member.silo)


async def _serve(directory: SiloDirectory, member: SiloIdentity, metrics_port: int | None) -> Never:
    key = directory.signing_key()
    directory.prepare()
    directory.write_proxy(os.environ)
    watched = WatchedSilo(directory, member, key.verify_key.to_text())
    executor = Executor(directory, watched, key)
    heard = directory.read_heard()
    async with hub_client(member.hub, member.silo, key) as hub:
        served = ServedSilo(directory, executor, watched, key, heard)
        me = Membership(key.verify_key.fingerprint, None, version())
        following = served.following = HubPoller(hub, served, me, Mirror(member.silo, heard["version"]))
        log.info("silo %s serves from %s; key %s", member.silo, directory.root, me.fingerprint)
        tasks = [asyncio.ensure_future(following.run()), asyncio.ensure_future(served.work())]
        try:
            metrics = exposition(executor, lambda: following.contact)
            async with probing(metrics, metrics_port):
                await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            executor.end()
    raise AssertionError("endless tasks have ended")


class ServedSilo(Institution):
    """Takes what the hub says to the executor, and what that says to the hub and into the directory.

    :ivar following: the other side; set before either begins.
    """

    following: HubPoller

    def __init__(
        self,
        directory: SiloDirectory,
        executor: Executor,
        watched: WatchedSilo,
        key: SigningKey,
        heard: dict[str, Any],
    ) -> None:
        self._directory, self._executor, self._watched, self._key = directory, executor, watched, key
        self._heard = heard
        self._told: Mirror | None = None
        self._disk_full = False
        self._stated: dict[str, tuple[str, Object]] = {}
        self._shown: Object = {}
        self._began = timestamp(datetime.now(UTC))

    @override
    async def on_revision(self, mirror: Mirror) -> None:
        self._told = mirror
        self._attempt(self._follow)

    @override
    async def on_enrolment(self) -> None:
        """Never called, since here only `fedsilo silo join` has a token."""
        raise AssertionError("a silo that serves has no token")

    @override
    async def contact(self, contact: Contact) -> None:
        self._attempt(self._show)

    async def work(self) -> Never:
        """Decide, start, end and say what there is to say, again and again."""
        while True:
            if self._attempt(self._step) and self._disk_full:
                log.info("%s: there is room again, and the silo goes on", self._directory.root)
                self._disk_full = False
            await asyncio.sleep(BUSY_SECONDS if self._executor.busy else IDLE_SECONDS)

    def _attempt(self, work: Callable[[], None]) -> bool:
        """Do what may be repeated; whether it is done. It is not while the disk is full, which is said once."""
        try:
            work()
        except OSError as error:
            if not is_disk_full(error):
                raise
            if not self._disk_full:
                log.error(
                    "%s: the disk is full; make room on it, and the silo goes on by itself: nothing is lost",
                    self._directory.root,
                )
            self._disk_full = True
            return False
        return True

    def _follow(self) -> None:
        """Do what the hub has told last, unless that is done."""
        if (mirror := self._told) is None:
            return
        if mirror.version != self._heard["version"]:
            self._remember(version=mirror.version)
        self._executor.follow(mirror)
        self._told = None

    def _remember(self, **facts: Any) -> None:
        """Only what is on the disk counts as heard or said."""
        heard = self._heard | facts
        write_with_digest(self._directory.hub_version_file, heard)
        self._heard = heard

    def _step(self) -> None:
        self._follow()
        self._executor.step()
        self._state()
        self._offer()
        self._show()

    def _state(self) -> None:
        """Tell the hub what has changed; only what is on the disk is told."""
        statuses = self._executor.statuses()
        for uid, (name, status) in statuses.items():
            if self._stated.get(uid) != (name, status):
                self.following.reports.state(name, uid, status)
                self.following.wake()
        names = {name for name, _ in statuses.values()}
        for name in self.following.reports.agents() - names:
            self.following.reports.forget(name)
        self._stated = statuses

    def _offer(self) -> None:
        silo, public_key = self._executor.silo, self._key.verify_key.to_text()
        stated: Object = self._heard.get("offer") or {}
        if not offers(stated, silo, public_key):
            stated = sign_offer(silo, datetime.now(UTC), self._key)
            self._remember(offer=stated)
            self.following.wake()
        self.following.reports.publish(stated)

    def _show(self) -> None:
        """Leave what `fedsilo silo status` shows of this process."""
        shown = {
            "pid": os.getpid(),
            "since": self._began,
            "hub": contact_of(self.following.contact),
            "fault": self._watched.fault,
            "processes": self._executor.pids(),
        }
        if shown != self._shown:
            write_json(self._directory.serving, shown)
            self._shown = shown


def contact_of(contact: Contact | None) -> Object | None:
    """What is left of the hub for `fedsilo silo status` and the dashboard."""
    if contact is None:
        return None
    return {
        "reached": contact.reached,
        "refused": contact.refused,
        "reason": str(contact.reason),
        "message": contact.message,
        "since": timestamp(contact.since),
        "heard": None if contact.heard is None else timestamp(contact.heard),
    }
