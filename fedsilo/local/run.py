"""Run a manifest on this machine: the real aggregator and, for each silo, the real guard and trainer.

This process imports no torch and touches no data. It prepares a directory, starts the others, starts again what
crashes, shows what they report, and leaves none of them behind.
"""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from fedsilo.api.loading import JobManifest
from fedsilo.errors import FedsiloError
from fedsilo.files.json_files import read_json
from fedsilo.local.child_processes import ChildProcess, ForkServerClient, end_all, logins
from fedsilo.local.disk_space import DiskSpaceCheck
from fedsilo.local.display import Display
from fedsilo.local.fork_server import modules_of_job
from fedsilo.local.progress import RunOutcome, RunProgress
from fedsilo.local.supervision import Supervision
from fedsilo.local.workdir import RunDirectory
from fedsilo.silo.volume import Volume

log = logging.getLogger("fedsilo.run")

AGGREGATOR, GUARD, TRAINER = (
    "fedsilo_aggregator.__main__",
    "fedsilo_agent.guard.__main__",
    "fedsilo_agent.trainer.__main__",
)
"""The programs, by name: their packages depend on this one."""

LAST_WORDS = ".end.json"
"""Suffix of the file beside a log in which a process says why it failed."""

POLL_SECONDS = 0.1
"""Time between two checks of the local baseline."""


def run_processes(
    federation: JobManifest,
    workdir: RunDirectory,
    data_root: Path,
    resume: bool,
    display: Display,
    server: ForkServerClient,
    check: Callable[[], None] = lambda: None,
) -> RunOutcome:
    """Run the job to its end; a full disk delays it.

    :param server: what its processes are forked from; it may still be warming up.
    :param data_root: directory that relative dataset paths start from.
    :raises WorkdirConflict: when the directory is another job's, or in use.
    :param check: called often; what it raises ends the run, and every process first.
    """
    began = time.monotonic()
    with workdir.hold_directory(federation, resume, DiskSpaceCheck(workdir.root, log.warning, check)) as uid:
        port = _free_port()
        progress = RunProgress(federation, workdir)
        progress.read()

        def check_and_show() -> None:
            display.update(progress)
            check()

        space = DiskSpaceCheck(workdir.root, progress.note, check_and_show)
        aggregator, *agents = _child_processes(federation, workdir, data_root, port, server)
        with display.showing(progress):
            space.wait(lambda: workdir.write_inputs(federation, uid, port))
            try:
                Supervision(aggregator, agents, server, progress, space).run(check_and_show)
            finally:
                end_all([aggregator, *agents], server)
            space.wait(workdir.collect)
            progress.read()
            space.wait(lambda: workdir.write_scores(progress.rounds))
            progress.cause = aggregator.cause
        document = progress.outcome(time.monotonic() - began)
        exit_code = 0 if document["phase"] == "Succeeded" else _exit_code(aggregator)
        return RunOutcome(document, exit_code, progress.exchanged_bytes, progress.rounds)


def local_baseline(
    workdir: RunDirectory,
    manifest: Path,
    data_root: Path,
    server: ForkServerClient,
    check: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """Scores of each silo training by itself, and of one model on all their data, for comparison; see
    `fedsilo.local.baseline.scores`, which runs in a process of its own.

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
    found: dict[str, Any] | None = read_json(output) if process.exit_code == 0 else None
    if found is None:
        raise FedsiloError(
            f"training for comparison ended with exit code {process.exit_code}; see {log_file}"
        )
    return found


def _child_processes(
    federation: JobManifest, workdir: RunDirectory, data_root: Path, port: int, server: ForkServerClient
) -> Iterator[ChildProcess]:
    """The aggregator, then guard and trainer of each silo."""
    limit = federation.job.spec.backoff_limit
    root = ["--data-root", str(data_root.resolve())]
    secrets, aggregator = workdir.secrets, workdir.aggregator
    arguments = ["--config", str(aggregator / "config.json"), "--dir", str(aggregator), *root]
    arguments += ["--task-key", str(secrets / "task-key.pem"), "--host", "127.0.0.1", "--port", str(port)]
    arguments += ["--tls-cert", str(secrets / "server.crt"), "--tls-key", str(secrets / "server.key")]
    arguments += ["--lost-silos", str(workdir.lost_silos)]
    log_file = workdir.logs / "aggregator.log"
    environment = {} if federation.job.spec.mlflow is None else logins()
    words = log_file.with_suffix(LAST_WORDS)
    yield ChildProcess(
        server,
        "aggregator",
        AGGREGATOR,
        arguments,
        log_file,
        limit,
        environment=environment,
        last_words=words,
    )
    modules = modules_of_job(federation.job.spec)
    names = [silo.metadata.name for silo in federation.silos]
    for name in names:
        volume = workdir.volume(name)
        arguments = [*_documents(volume, volume.guard), "--key", str(volume.guard / "key.pem")]
        arguments += ["--policy", str(volume.guard / "silo.json"), "--ledgers", str(workdir.ledgers(name))]
        log_file = workdir.logs / f"{name}-guard.log"
        words = log_file.with_suffix(LAST_WORDS)
        yield ChildProcess(
            server, f"{name} guard", GUARD, arguments, log_file, limit, modules=modules, last_words=words
        )
        hidden = [secrets, aggregator, *(workdir.silo(other) for other in names if other != name)]
        arguments = [*_documents(volume, volume.root), *root, "--isolate"]
        arguments += [f"--hide={path}" for path in hidden]
        log_file = workdir.logs / f"{name}-trainer.log"
        yield ChildProcess(server, f"{name} trainer", TRAINER, arguments, log_file, limit, modules=modules)


def _documents(volume: Volume, directory: Path) -> list[str]:
    documents = ["--agent", str(directory / "agent.json"), "--silo", str(directory / "silo.json")]
    return [*documents, "--volume", str(volume.root)]


def _exit_code(aggregator: ChildProcess) -> int:
    code = aggregator.exit_code
    return code if code is not None and code > 0 else 1


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
