"""A federation's directory as `fedsilo run` lays it out, and its processes, started one by one by a test."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import yaml

from fedsilo.api.job import FederatedJob
from fedsilo.api.loading import JobManifest
from fedsilo.api.silo import Silo
from fedsilo.local.workdir import RunDirectory
from tests import warm
from tests.ports import free_port

T = TypeVar("T")

PATIENCE_SECONDS = 90.0
"""Seconds after which a test gives up waiting; each wait ends as soon as its condition holds."""


def wait_until(condition: Callable[[], T | None], what: str) -> T:
    """Wait for a condition to yield something, and return that."""
    end = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < end:
        if found := condition():
            return found
        time.sleep(0.01)
    raise AssertionError(f"waited {PATIENCE_SECONDS:g} s in vain for {what}")


def federation(
    *,
    rounds: int = 1,
    hidden: Sequence[int] = (6,),
    deadline: str = "5m",
    quorum: int = 2,
    policy: Mapping[str, Any] | None = None,
    data: Mapping[str, Any] | None = None,
    output: Mapping[str, Any] | None = None,
    communication: Mapping[str, Any] | None = None,
    names: Sequence[str] = ("north", "south"),
    **sections: Any,
) -> JobManifest:
    """Two silos that average a small network; the silos score the last model themselves.

    :param data: what a trainer finds, where there is one; tests mostly answer in its place.
    :param names: of the silos, where there are others.
    :param sections: of the job's specification, in place of those here.
    """
    job = {
        "metadata": {"name": "attacked", "namespace": "federation"},
        "spec": {
            "method": {"name": "fedavg"},
            "model": {"name": "mlp", "config": {"hidden": list(hidden)}},
            "data": {"dataset": "digits", **(data or {"classes": 3, "inputShape": [4]})},
            "training": {"rounds": rounds},
            "silos": {"refs": [{"namespace": f"silo-{name}", "name": name} for name in names]},
            "participation": {"roundDeadline": deadline, "minSilos": quorum},
            "evaluation": {"every": rounds},
            "output": output,
            "communication": communication,
            **sections,
        },
    }
    silos = [
        {
            "metadata": {"name": name, "namespace": f"silo-{name}"},
            "spec": {"datasets": [{"name": "digits", "loader": "sklearn:digits"}], "policy": policy or {}},
        }
        for name in names
    ]
    return JobManifest(
        "test", FederatedJob.model_validate(job), tuple(Silo.model_validate(silo) for silo in silos)
    )


class Site:
    """Keys, certificates and configuration of a federation on one machine.

    :param port: where the aggregator is, or will be; a free one when absent.
    """

    def __init__(self, root: Path, federation: JobManifest, port: int | None = None) -> None:
        self.federation = federation
        self.workdir = RunDirectory(root)
        self.port = port or free_port()
        root.mkdir(parents=True, exist_ok=True)
        self.uid = str(uuid.uuid4())
        self.workdir.write_inputs(federation, self.uid, self.port)

    @property
    def silos(self) -> tuple[str, ...]:
        return tuple(f"{silo.metadata.namespace}/{silo.metadata.name}" for silo in self.federation.silos)

    @property
    def spec_digest(self) -> str:
        return str(self.agent("north")["spec"]["job"]["specDigest"])

    def agent(self, name: str) -> Any:
        return yaml.safe_load((self.workdir.silo(name) / "agent.json").read_text())

    def aggregator(
        self, directory: Path | None = None, before: Sequence[str] = (), more: Sequence[str] = ()
    ) -> Process:
        """Start the aggregator and wait until it answers.

        :param directory: where it keeps the job, its own by default.
        :param before: a command that runs it.
        :param more: further arguments.
        """
        process = self.start_aggregator(directory, before, more)
        wait_until(lambda: self._listens(process), "the aggregator to listen")
        return process

    def start_aggregator(
        self, directory: Path | None = None, before: Sequence[str] = (), more: Sequence[str] = ()
    ) -> Process:
        """Start the aggregator, which may end before it ever answers."""
        arguments = [*self.aggregator_arguments(directory), *more]
        return Process("fedsilo_aggregator", arguments, self.workdir.logs / "aggregator.log", before)

    def aggregator_arguments(self, directory: Path | None = None) -> list[str]:
        """What an aggregator must be told."""
        secrets = self.workdir.secrets
        arguments = ["--config", str(self.workdir.aggregator / "config.json")]
        arguments += ["--dir", str(directory or self.workdir.aggregator)]
        arguments += ["--task-key", str(secrets / "task-key.pem")]
        arguments += ["--host", "127.0.0.1", "--port", str(self.port)]
        return [
            *arguments,
            "--tls-cert",
            str(secrets / "server.crt"),
            "--tls-key",
            str(secrets / "server.key"),
        ]

    def guard(self, name: str = "north", more: Sequence[str] = (), before: Sequence[str] = ()) -> Process:
        arguments = [*self.guard_arguments(name), *more]
        return Process("fedsilo_agent.guard", arguments, self.workdir.logs / f"{name}.log", before)

    def guard_arguments(self, name: str = "north") -> list[str]:
        """What a guard must be told."""
        directory = self.workdir.silo(name)
        arguments = ["--agent", str(directory / "agent.json"), "--silo", str(directory / "silo.json")]
        key = self.workdir.volume(name).guard / "key.pem"
        return [*arguments, "--volume", str(directory), "--key", str(key)]

    def trainer(self, name: str = "north", more: Sequence[str] = ()) -> Process:
        directory = self.workdir.silo(name)
        arguments = ["--agent", str(directory / "agent.json"), "--silo", str(directory / "silo.json")]
        arguments += ["--volume", str(directory)]
        log = self.workdir.logs / f"{name}-trainer.log"
        return Process("fedsilo_agent.trainer", [*arguments, *more], log)

    def status(self) -> Any:
        path = self.workdir.aggregator / "status.json"
        return json.loads(path.read_bytes()) if path.exists() else {}

    def log(self, name: str = "aggregator") -> str:
        return (self.workdir.logs / f"{name}.log").read_text()

    def _listens(self, process: Process) -> bool:
        assert process.running, self.log()
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
        except OSError:
            return False
        return True


class Process:
    """One process of the federation, which ends with the test run at the latest: it watches its standard input.

    :param before: a command that runs it. Without one it begins warm.
    """

    def __init__(self, module: str, arguments: Sequence[str], log: Path, before: Sequence[str] = ()) -> None:
        arguments = [*arguments, "--exit-with-parent"]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        with log.open("ab") as output:
            files: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": output, "stderr": output}
            self._process: subprocess.Popen[bytes] = (
                subprocess.Popen(
                    [*before, sys.executable, "-m", module, *arguments], env=environment, **files
                )
                if before
                else warm.start(module, arguments, env=environment, **files)
            )

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    @property
    def pid(self) -> int:
        return self._process.pid

    def exit_code(self) -> int:
        """Wait for the end."""
        try:
            return self._process.wait(PATIENCE_SECONDS)
        finally:
            self.kill()

    def stop(self) -> None:
        """Ask it to end, as Kubernetes does."""
        self._process.terminate()

    def kill(self) -> None:
        """End it as a power cut would."""
        self._process.kill()
        self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()
