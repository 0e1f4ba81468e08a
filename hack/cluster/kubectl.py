"""kubectl with one kubeconfig.

kubectl rather than a client library, since it is what people use and its errors are the ones they see.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import yaml

from fedsilo.api.observed import Object
from hack.cluster.binaries import programs

PATIENCE_SECONDS = 120.0
"""How long a command may take by default."""


class KubectlError(AssertionError):
    """kubectl ended with an error; its text is the message."""


@dataclass(frozen=True)
class Kubectl:
    """The cluster that a kubeconfig names.

    :param account: user to impersonate; that of the kubeconfig when None.
    :param within: command line that runs another where the cluster can be reached; empty where that is here.
    """

    kubeconfig: Path
    account: str | None = None
    within: tuple[str, ...] = ()

    @property
    def program(self) -> Path:
        """Path of the kubectl executable."""
        return programs() / "kubectl"

    def as_service_account(self, namespace: str, name: str) -> Kubectl:
        """Access to the cluster as a service account, which kubectl impersonates."""
        return replace(self, account=f"system:serviceaccount:{namespace}:{name}")

    def command(self, *arguments: str) -> list[str]:
        """The command line, for a caller that runs it itself."""
        impersonating = [f"--as={self.account}"] if self.account else []
        return [
            *self.within,
            str(self.program),
            f"--kubeconfig={self.kubeconfig}",
            *impersonating,
            *arguments,
        ]

    def run(self, *arguments: str, stdin: str | None = None, timeout: float = PATIENCE_SECONDS) -> str:
        """Run a kubectl command and return its standard output.

        :raises KubectlError: when it fails.
        """
        done = subprocess.run(
            self.command(*arguments), input=stdin, capture_output=True, text=True, timeout=timeout
        )
        if done.returncode != 0:
            raise KubectlError(f"kubectl {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout

    def fedsilo(self, *arguments: str, timeout: float = PATIENCE_SECONDS) -> str:
        """`kubectl fedsilo ...`, the plugin of this environment as a person calls it; its standard output.

        :raises KubectlError: when it fails.
        """
        path = os.pathsep.join(
            [str(Path(sys.executable).parent), str(self.program.parent), os.environ["PATH"]]
        )
        done = subprocess.run(
            [*self.within, str(self.program), "fedsilo", *arguments],
            env={**os.environ, "PATH": path, "KUBECONFIG": str(self.kubeconfig)},
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        if done.returncode != 0:
            raise KubectlError(f"kubectl fedsilo {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout

    def refusal(self, *arguments: str, stdin: str | None = None) -> str:
        """Run a command that must fail; its error message."""
        try:
            said = self.run(*arguments, stdin=stdin)
        except KubectlError as failed:
            return str(failed)
        raise AssertionError(f"kubectl {' '.join(arguments)} was not refused but said: {said}")

    def get(self, *arguments: str) -> Object:
        """`kubectl get` as JSON; a list where the arguments name no single object."""
        return dict(json.loads(self.run("get", *arguments, "-o", "json")))

    def find(self, *arguments: str) -> Object | None:
        """`get`, None when there is no such object."""
        found = self.run("get", *arguments, "--ignore-not-found", "-o", "json")
        return dict(json.loads(found)) if found else None

    def apply(self, *objects: Object) -> None:
        """Apply objects on the server's side."""
        text = yaml.dump_all(objects, Dumper=yaml.CSafeDumper)
        self.run("apply", "--server-side", "-f", "-", stdin=text)
