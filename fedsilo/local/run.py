"""Run a manifest on this machine: the real aggregator and, for each silo, the real guard and trainer.

This process imports no torch and touches no data. It prepares a directory, starts the others, starts again what
crashes, shows what they report, and leaves none of them behind.
"""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedsilo.api.loading import JobManifest
from fedsilo.durable import read_json, write_json
from fedsilo.errors import FedsiloError
from fedsilo.local.child_processes import ChildProcess, end_all
from fedsilo.local.display import Display
from fedsilo.local.progress import Outcome, Progress
from fedsilo.local.stopping import stopping
from fedsilo.local.workdir import Workdir
from fedsilo.silo.volume import Volume

log = logging.getLogger("fedsilo.run")

LOOK = 0.1
"""Seconds between looks at the processes and the aggregator's status."""

LAST_TASK = 3.0
"""Seconds that guards and trainers get to end by themselves: the aggregator has told them before it ended."""


def run(
    federation: JobManifest, workdir: Workdir, data_root: Path, resume: bool, display: Display
) -> Outcome:
    """Run the job to its end.

    :param data_root: directory that relative dataset paths start from.
    :raises WorkdirConflict: when the directory is another job's, or in use.
    :raises Stopped: on SIGINT and SIGTERM, when every process has ended.
    """
    began = time.monotonic()
    with workdir.claimed(federation, resume) as uid, stopping() as check:
        port = _free_port()
        workdir.write_inputs(federation, uid, port)
        progress = Progress(federation, workdir)
        progress.read()
        parts = _child_processes(federation, workdir, data_root, port)
        try:
            with display.showing(progress):
                _supervise(parts, workdir, progress, display, check)
        finally:
            end_all(parts)
        workdir.collect()
        progress.read()
        document = progress.outcome(time.monotonic() - began)
        exit_code = 0 if document["phase"] == "Succeeded" else _exit_code(parts[0])
        return Outcome(document, exit_code, progress.exchanged)


def train_alone(workdir: Workdir, manifest: Path, data_root: Path) -> list[dict[str, Any]]:
    """Accuracy of each silo training by itself, for comparison; in a process of its own.

    Possible only here, where one machine holds every silo's data.

    :raises Stopped: on SIGINT and SIGTERM.
    """
    output, log_file = workdir.root / "alone.json", workdir.logs / "alone.log"
    part = ChildProcess(
        "alone", "fedsilo.local.baseline", [str(manifest), str(data_root), str(output)], log_file, 0
    )
    with stopping() as check:
        try:
            while not part.ended:
                check()
                part.supervise()
                time.sleep(LOOK)
        finally:
            end_all([part])
    if part.exit_code != 0:
        raise FedsiloError(f"training alone ended with exit code {part.exit_code}; see {log_file}")
    found: list[dict[str, Any]] = read_json(output)
    return found


def _child_processes(
    federation: JobManifest, workdir: Workdir, data_root: Path, port: int
) -> list[ChildProcess]:
    spec = federation.job.spec
    root = ["--data-root", str(data_root.resolve())]
    secrets, aggregator = workdir.secrets, workdir.aggregator
    arguments = ["--config", str(aggregator / "config.json"), "--dir", str(aggregator), *root]
    arguments += ["--task-key", str(secrets / "task-key.pem"), "--host", "127.0.0.1", "--port", str(port)]
    arguments += ["--tls-cert", str(secrets / "server.crt"), "--tls-key", str(secrets / "server.key")]
    log_file = workdir.logs / "aggregator.log"
    parts = [ChildProcess("aggregator", "fedsilo_aggregator", arguments, log_file, spec.backoff_limit)]
    names = [silo.metadata.name for silo in federation.silos]
    for name in names:
        volume = workdir.volume(name)
        guard = [*_documents(volume, volume.guard), "--key", str(volume.guard / "key.pem")]
        log_file = workdir.logs / f"{name}-guard.log"
        parts.append(
            ChildProcess(f"{name} guard", "fedsilo_agent.guard", guard, log_file, spec.backoff_limit)
        )
        log_file = workdir.logs / f"{name}-trainer.log"
        hidden = [secrets, aggregator, *(workdir.silo(other) for other in names if other != name)]
        trainer = [
            *_documents(volume, volume.root),
            *root,
            "--isolate",
            *(f"--hide={path}" for path in hidden),
        ]
        parts.append(
            ChildProcess(f"{name} trainer", "fedsilo_agent.trainer", trainer, log_file, spec.backoff_limit)
        )
    return parts


def _documents(volume: Volume, directory: Path) -> list[str]:
    documents = ["--agent", str(directory / "agent.json"), "--silo", str(directory / "silo.json")]
    return [*documents, "--volume", str(volume.root)]


def _supervise(
    parts: list[ChildProcess],
    workdir: Workdir,
    progress: Progress,
    display: Display,
    check: Callable[[], None],
) -> None:
    aggregator, agents = parts[0], parts[1:]
    mourned: set[str] = set()
    known: dict[str, int | None] = {}
    while not aggregator.ended:
        check()
        for part in parts:
            part.supervise()
            if part.ended and part.name not in mourned:
                mourned.add(part.name)
                _report_end(part, workdir, progress)
        pids = {part.name: part.pid for part in parts}
        if pids != known:
            write_json(workdir.root / "processes.json", pids)
            known = pids
        progress.read()
        display.update(progress)
        time.sleep(LOOK)
    until = time.monotonic() + LAST_TASK
    while (
        aggregator.exit_code in (0, 4) and not all(part.ended for part in agents) and time.monotonic() < until
    ):
        check()
        for part in agents:
            part.supervise()
        time.sleep(LOOK)


def _report_end(part: ChildProcess, workdir: Workdir, progress: Progress) -> None:
    """Let the guard of a trainer that was given up say so, rather than be silent until the deadline."""
    if part.exit_code == 0:
        return
    progress.note(f"{part.name}: ended with exit code {part.exit_code}; see {part.log_file}")
    silo, _, role = part.name.partition(" ")
    failed = workdir.volume(silo).drop / "failed.json"
    if role == "trainer" and not failed.exists():
        crashed = f"crashed {part.crashes} times, last" if part.crashes > 1 else "ended"
        message = f"the trainer {crashed} with exit code {part.exit_code}; see its log"
        write_json(failed, {"reason": "TrainerLost", "message": message})


def _exit_code(aggregator: ChildProcess) -> int:
    code = aggregator.exit_code
    return code if code is not None and code > 0 else 1


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
