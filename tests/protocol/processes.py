"""Processes of the three kinds, as their programs start them, which can die at every durable step."""

from __future__ import annotations

import asyncio
import contextvars
import ssl
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any
from unittest import mock

import aiohttp

from fedsilo.engine.round_engine import RoundEngine
from fedsilo.engine.status import StatusSource
from fedsilo.engine.status_sinks import StatusFile
from fedsilo.engine.store import JobStore
from fedsilo.engine.workflow import Workflow
from fedsilo.errors import FedsiloError
from fedsilo.files.full_disk import when_there_is_space
from fedsilo.silo.audit_chain import AuditBroken
from fedsilo.silo.personal import PersonalModel
from fedsilo.silo.volume import Volume
from fedsilo.transforms.plan import JobPlan
from fedsilo_agent.guard.client import AggregatorAddress, AggregatorClient
from fedsilo_agent.guard.guarded_job import GuardedJob
from fedsilo_agent.guard.loop import Guard
from fedsilo_agent.guard.task_check import TaskCheck
from fedsilo_agent.guard.task_source import decline
from fedsilo_agent.trainer.loop import Trainer
from fedsilo_agent.trainer.mailbox import Mailbox
from fedsilo_aggregator.http import AggregatorService
from fedsilo_aggregator.lost_silos import LostSilosFile
from fedsilo_aggregator.rounds import run_rounds, runner_of
from tests.protocol.network import MemoryConnector
from tests.protocol.numeric import Runner
from tests.protocol.virtual_time import Actor

if TYPE_CHECKING:
    from tests.protocol.world import World

RUNNING: contextvars.ContextVar[Process | None] = contextvars.ContextVar("RUNNING", default=None)
"""The process whose code runs."""


class ProcessDeath(BaseException):
    """The end of a process, which no code of it can see or hold up."""


class Process:
    """One process of a party, from a start to its end.

    :ivar error: what it ended with, if it ended by itself and not well.
    """

    def __init__(self, world: World, party: str) -> None:
        self.world = world
        self.party = party
        self.dead = False
        self.ended = False
        self.error: BaseException | None = None
        self._tasks: list[asyncio.Task[Any]] = []
        self._actor: Actor[Serving | None] | None = None
        context = contextvars.copy_context()
        context.run(RUNNING.set, self)
        context.run(self._start)

    def add(self, task: asyncio.Task[Any]) -> None:
        """A task of this process."""
        self._tasks.append(task)

    def die(self) -> None:
        """End the process at once: nothing more is written or sent."""
        self.dead = True

    def bury(self) -> None:
        """Take from the loop what the dead process has left there."""
        self.world.network.disconnect(self)
        for task in self._tasks:
            task.cancel()
        if self._actor is not None:
            self._actor.kill(ProcessDeath())

    def _start(self) -> None:
        """Begin in a thread, which may block, as a program does before its event loop runs."""
        name, _, role = self.party.partition(" ")
        starts: dict[str, Callable[[], Serving | None]] = {
            "": lambda: _open_aggregator(self),
            "guard": lambda: _open_guard(self, name),
            "trainer": lambda: _train(self.world, name),
        }
        self._actor = Actor(self.world.loop, starts[role], self._on_start)

    def _on_start(self, serving: Serving | None, error: BaseException | None) -> None:
        if serving is None:
            self._end(error)
        elif self.dead:
            serving.close()
        else:
            self.world.loop.create_task(serving).add_done_callback(self._on_task_end)

    def _on_task_end(self, task: asyncio.Task[None]) -> None:
        if not self.dead:
            self._end(asyncio.CancelledError() if task.cancelled() else task.exception())

    def _end(self, error: BaseException | None) -> None:
        if not self.dead:
            self.error = error
            self.ended = True
            self.world.network.disconnect(self)
            self.world.on_process_end(self)


def by_process(
    loop: asyncio.AbstractEventLoop, coroutine: Any, context: contextvars.Context | None = None
) -> asyncio.Task[Any]:
    """A loop's task factory that lets each process know its tasks."""
    task: asyncio.Task[Any] = asyncio.Task(coroutine, loop=loop, context=context)
    process = RUNNING.get()
    if process is not None:
        process.add(task)
    return task


Serving = Coroutine[Any, Any, None]
"""What a process does in its event loop."""


def _open_aggregator(process: Process) -> Serving:
    """`fedsilo-aggregator`, as its `__main__` has it, up to `rounds.serve`."""
    world = process.world
    job, directory = world.job, world.disks["aggregator"].root
    key, keys = job.task_key, job.public_keys
    workflow = Workflow(job.method, job.context)
    engine = when_there_is_space(lambda: RoundEngine(JobStore(directory), job.identity, workflow, key, keys))
    return _aggregate(process, AggregatorService(engine, keys), StatusFile(directory / "status.json"))


async def _aggregate(process: Process, service: AggregatorService, file: StatusFile) -> None:
    world, engine = process.world, service.engine
    status = StatusSource(engine, service.refused, service.served, world.now)
    runner = runner_of(service)
    await runner.setup()
    try:
        assert runner.server is not None
        world.network.listen(process, runner.server)
        await run_rounds(service, status, file, LostSilosFile(None))
    finally:
        await runner.cleanup()
    if engine.failure is not None:
        engine.forget_failures()
        raise engine.failure


def _open_guard(process: Process, name: str) -> Serving:
    """`fedsilo-guard`, as its `__main__` has it."""
    agent, silo = process.world.job.agents[name]
    volume = Volume(process.world.disks[name].root)
    volume.prepare_guard()
    return _guard(process, name, TaskCheck(agent, silo), volume)


async def _guard(process: Process, name: str, check: TaskCheck, volume: Volume) -> None:
    spec, key = check.agent.spec, process.world.job.keys[name]
    peer = AggregatorAddress(spec.trust.url, spec.trust.ca_certificate, spec.job.uid, check.reference, key)
    connector = MemoryConnector(process.world.network, process, name)
    with (
        mock.patch.object(ssl, "create_default_context", lambda **_: ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)),
        mock.patch.object(aiohttp, "TCPConnector", lambda **_: connector),
    ):
        client = await AggregatorClient(peer).__aenter__()
    try:
        try:
            guard = Guard(GuardedJob(check, volume, key, client))
        except AuditBroken as broken:
            await decline(client, check, broken)
            raise
        await guard.run()
    finally:
        await client.__aexit__()


def _train(world: World, name: str) -> None:
    """`fedsilo-trainer`, as its `__main__` has it."""
    job, volume = world.job, Volume(world.disks[name].root)
    volume.prepare_trainer()
    Mailbox(volume, ()).clear()
    mailbox = Mailbox(volume, JobPlan(job.method).exchanges)
    reference = str(job.agents[name][1])
    runner: Any = Runner(job.method, reference, world.plan.restless)
    mailbox.announce(job.context.signature, "none")
    try:
        Trainer(mailbox, runner, PersonalModel(volume.state, job.method, reference)).run()
    except FedsiloError as error:
        mailbox.give_up(error.reason, str(error))
        raise
