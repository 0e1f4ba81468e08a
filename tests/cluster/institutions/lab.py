"""The institution without Kubernetes: a machine of its own, whose only way out is a forward proxy."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from fedsilo.api.observed import Object
from hack.cluster.premises import Premises
from tests.cluster.institutions.forward_proxy import ForwardProxy, forward_proxy

STOP_SECONDS = 60


@dataclass(frozen=True)
class Lab:
    """The machine with a silo's directory.

    :param place: where it is.
    :param folder: for the directory and logs.
    :param proxy: its only way out.
    """

    place: Premises
    folder: Path
    proxy: ForwardProxy

    @property
    def directory(self) -> Path:
        """The silo's directory on the machine."""
        return self.folder / "silo"

    @property
    def log(self) -> Path:
        """Log file of the process that serves the silo's directory."""
        return self.folder / "serve.log"

    def join(self, invitation: Path, silo: Object) -> str:
        """Join, and offer what a Silo offers; the fingerprint."""
        said = self.run("join", str(invitation))
        (self.directory / "silo.yaml").write_text(yaml.safe_dump(silo))
        found = re.search(r"\b[0-9a-f]{4}(-[0-9a-f]{4}){4}\b", said)
        assert found, said
        return found[0]

    def status(self) -> Mapping[str, Any]:
        """What `fedsilo silo status` says, as JSON."""
        return dict(json.loads(self.run("status", "--json")))

    def run(self, command: str, *arguments: str) -> str:
        """`fedsilo silo ...` as a person there runs it; its standard output."""
        done = subprocess.run(
            self._command(command, *arguments),
            env=self._environment(),
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, f"fedsilo silo {command}: {done.stderr}"
        return done.stdout

    @contextmanager
    def serving(self) -> Iterator[None]:
        """`fedsilo silo serve`, for as long as the block runs."""
        with (
            self.log.open("ab") as output,
            subprocess.Popen(
                self._command("serve"), env=self._environment(), stdout=output, stderr=output
            ) as process,
        ):
            try:
                yield
            finally:
                process.send_signal(signal.SIGTERM)
                try:
                    process.wait(STOP_SECONDS)
                finally:
                    process.kill()

    def _command(self, command: str, *arguments: str) -> list[str]:
        program = Path(sys.executable).with_name("fedsilo")
        return self.place.command(str(program), "silo", command, *arguments, "--dir", str(self.directory))

    def _environment(self) -> dict[str, str]:
        return {**os.environ, "HTTPS_PROXY": self.proxy.url, "OMP_NUM_THREADS": "1"}


@contextmanager
def laboratory(folder: Path, *, credentials: bool = True) -> Iterator[Lab]:
    """The machine and the proxy between it and the outside.

    :param credentials: whether the proxy asks for them.
    """
    between = Premises("dmz", 2)
    inside = Premises("lab", 3, outside=between, routed=False)
    try:
        between.make()
        inside.make()
        with forward_proxy(between, inside.gateway, credentials=credentials) as proxy:
            yield Lab(inside, folder, proxy)
    finally:
        inside.remove()
        between.remove()
