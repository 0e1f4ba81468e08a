"""Run a manifest on this machine: the real aggregator and, for each silo, the real guard and trainer.

This process imports no torch and touches no data. It prepares a directory, starts the others, starts again what
crashes, shows what they report, and leaves none of them behind.
"""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from fedsilo.api.loading import JobManifest
from fedsilo.durable import read_json, write_json
from fedsilo.errors import FedsiloError
from fedsilo.local.child_processes import ChildProcess, ForkServerClient, end_all
from fedsilo.local.display import Display
from fedsilo.local.progress import RunOutcome, RunProgress
from fedsilo.local.workdir import Workdir
from fedsilo.silo.volume import Volume

log = logging.getLogger("fedsilo.run")

AGGREGATOR, GUARD, TRAINER = (
    "fedsilo_aggregator.__main__",
    "fedsilo_agent.guard.__main__",
    "fedsilo_agent.trainer.__main__",
)
"""The programs, by name: their packages depend on this one."""

POLL_SECONDS = 0.1
"""Time between two checks of the processes and the aggregator's status."""

LAST_TASK_SECONDS = 3.0
"""Time in which guards and trainers may end by themselves: the aggregator gave them their last task before it ended."""


def run_processes(
    federation: JobManifest,
    workdir: Workdir,
    data_root: Path,
    resume: bool,
    display: Display,
    server: ForkServerClient,
    check: Callable[[], None] = lambda: None,
) -> RunOutcome:
    """Run the job to its end.

    :param server: what its processes are forked from; it may still be warming up.
    :param data_root: directory that relative dataset paths start from.
    :raises WorkdirConflict: when the directory is another job's, or in use.
    :param check: called often; what it raises ends the run, and every process first.
    """
    began = time.monotonic()
    with workdir.claimed(federation, resume) as uid:
        port = _free_port()
        workdir.write_inputs(federation, uid, port)
        progress = RunProgress(federation, workdir)
        progress.read()
        aggregator, *agents = _child_processes(federation, workdir, data_root, port, server)
        try:
            with display.showing(progress):
                _supervise(aggregator, agents, server, workdir, progress, display, check)
        finally:
            end_all([aggregator, *agents], server)
        workdir.collect()
        progress.read()
        document = progress.outcome(time.monotonic() - began)
        exit_code = 0 if document["phase"] == "Succeeded" else _exit_code(aggregator)
        return RunOutcome(document, exit_code, progress.exchanged, progress.rounds)


def local_baseline(
    workdir: Workdir,
    manifest: Path,
    data_root: Path,
    server: ForkServerClient,
    check: Callable[[], None] = lambda: None,
) -> list[dict[str, Any]]:
    """Accuracy of each silo training by itself, for comparison; in a process of its own.

    Possible only here, where one machine holds every silo's data.

    :param check: as for `run_processes`.
    """
    output, log_file = workdir.root / "alone.json", workdir.logs / "alone.log"
    arguments = [str(manifest), str(data_root), str(output)]
    process = ChildProcess(server, "local baseline", "fedsilo.local.baseline", arguments, log_file, 0)
    try:
        while not process.ended:
            check()
            server.poll()
            process.supervise()
            time.sleep(POLL_SECONDS)
    finally:
        end_all([process], server)
    if process.exit_code != 0:
        raise FedsiloError(f"training alone ended with exit code {process.exit_code}; see {log_file}")
    found: list[dict[str, Any]] = read_json(output)
    return found


def _child_processes(
    federation: JobManifest, workdir: Workdir, data_root: Path, port: int, server: ForkServerClient
) -> Iterator[ChildProcess]:
    """The aggregator, then guard and trainer of each silo."""
    limit = federation.job.spec.backoff_limit
    root = ["--data-root", str(data_root.resolve())]
    secrets, aggregator = workdir.secrets, workdir.aggregator
    arguments = ["--config", str(aggregator / "config.json"), "--dir", str(aggregator), *root]
    arguments += ["--task-key", str(secrets / "task-key.pem"), "--host", "127.0.0.1", "--port", str(port)]
    arguments += ["--tls-cert", str(secrets / "server.crt"), "--tls-key", str(secrets / "server.key")]
    log_file = workdir.logs / "aggregator.log"
    yield ChildProcess(server, "aggregator", AGGREGATOR, arguments, log_file, limit)
    names = [silo.metadata.name for silo in federation.silos]
    for name in names:
        volume = workdir.volume(name)
        arguments = [*_documents(volume, volume.guard), "--key", str(volume.guard / "key.pem")]
        log_file = workdir.logs / f"{name}-guard.log"
        yield ChildProcess(server, f"{name} guard", GUARD, arguments, log_file, limit)
        hidden = [secrets, aggregator, *(workdir.silo(other) for other in names if other != name)]
        arguments = [*_documents(volume, volume.root), *root, "--isolate"]
        arguments += [f"--hide={path}" for path in hidden]
        log_file = workdir.logs / f"{name}-trainer.log"
        yield ChildProcess(server, f"{name} trainer", TRAINER, arguments, log_file, limit)


def _documents(volume: Volume, directory: Path) -> list[str]:
    documents = ["--agent", str(directory / "agent.json"), "--silo", str(directory / "silo.json")]
    return [*documents, "--volume", str(volume.root)]


def _supervise(
    aggregator: ChildProcess,
    agents: Sequence[ChildProcess],
    server: ForkServerClient,
    workdir: Workdir,
    progress: RunProgress,
    display: Display,
    check: Callable[[], None],
) -> None:
    processes = [aggregator, *agents]
    reported: set[str] = set()
    known: dict[str, int | None] = {}
    while not aggregator.ended:
        check()
        server.poll()
        for process in processes:
            process.supervise()
            if process.ended and process.name not in reported:
                reported.add(process.name)
                _report_end(process, workdir, progress)
        pids = {"fork server": server.pid} | {process.name: process.pid for process in processes}
        if pids != known:
            write_json(workdir.root / "processes.json", pids)
            known = pids
        progress.read()
        display.update(progress)
        time.sleep(POLL_SECONDS)
    until = time.monotonic() + LAST_TASK_SECONDS
    while (
        aggregator.exit_code in (0, 4)
        and not all(process.ended for process in agents)
        and time.monotonic() < until
    ):
        check()
        server.poll()
        for process in agents:
            process.supervise()
        time.sleep(POLL_SECONDS)


def _report_end(process: ChildProcess, workdir: Workdir, progress: RunProgress) -> None:
    """Let the guard of a trainer that was given up report that, instead of keeping silent until the deadline."""
    if process.exit_code == 0:
        return
    progress.note(f"{process.name}: ended with exit code {process.exit_code}; see {process.log_file}")
    silo, _, role = process.name.partition(" ")
    failed = workdir.volume(silo).drop / "failed.json"
    if role == "trainer" and not failed.exists():
        crashed = f"crashed {process.crashes} times, last" if process.crashes > 1 else "ended"
        message = f"the trainer {crashed} with exit code {process.exit_code}; see its log"
        write_json(failed, {"reason": "TrainerLost", "message": message})


def _exit_code(aggregator: ChildProcess) -> int:
    code = aggregator.exit_code
    return code if code is not None and code > 0 else 1


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
