"""The cluster, through the user's own kubectl: every login that works there works here.

Exit codes of failures: 2 for a name, an option or a kubectl that is not there, 5 where the login lacks a right,
1 where the cluster cannot be asked.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from fedsilo.cli.cluster.program import run_program
from fedsilo.cli.cluster.text import plain_line
from fedsilo.errors import FedsiloError, ManifestInvalid, PolicyRefused
from fedsilo.wire.problems import one_line

REQUEST_TIMEOUT_SECONDS = 15
"""Time that the API server has for one answer."""

_SILENCE_SECONDS = 2
"""Time after which what kubectl prints is shown at once: a login plugin may be asking the user something."""

_FORBIDDEN_ANSWER = re.compile(
    r'cannot (?P<verb>\w+) resource "(?P<resource>[^"]+)"'
    r'(?: in API group "(?P<group>[^"]*)")?(?P<where> in the namespace "(?P<namespace>[^"]+)")?'
)


def add_cluster_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of kubectl that choose cluster and namespace."""
    group = parser.add_argument_group("cluster, as for kubectl")
    group.add_argument(
        "--context", metavar="NAME", help="context of the kubeconfig (default: its current one)"
    )
    group.add_argument("--kubeconfig", metavar="FILE", help="path of the kubeconfig")
    group.add_argument(
        "-n", "--namespace", metavar="NAMESPACE", help="namespace (default: that of the context)"
    )


@dataclass(frozen=True)
class Kubectl:
    """A kubectl and the login that it uses.

    :param program: words of the command, `kubectl` or such as `microk8s kubectl`.
    :param login: options that choose cluster and user.
    :param namespace: where to look; None for the context's own.
    """

    program: tuple[str, ...]
    login: tuple[str, ...] = ()
    namespace: str | None = None

    @classmethod
    def of(cls, args: argparse.Namespace) -> Kubectl:
        """The kubectl that `KUBECTL` or else `PATH` names, with the command's options.

        :raises ManifestInvalid: when there is none.
        """
        words = shlex.split(os.environ.get("KUBECTL", "")) or ["kubectl"]
        if shutil.which(words[0]) is None:
            raise ManifestInvalid(
                f"{words[0]}: there is no such program on PATH; install kubectl, or name it in KUBECTL"
            )
        given = (("--context", args.context), ("--kubeconfig", args.kubeconfig))
        login = tuple(word for option, value in given if value for word in (option, value))
        return cls(tuple(words), login, args.namespace)

    def command(self, *arguments: str) -> list[str]:
        """The words of a call."""
        return [*self.program, *self.login, *arguments]

    def get(self, resource: str, *arguments: str, namespace: str | None = None) -> Any:
        """One object, or with no name a list.

        :raises ManifestInvalid: when it is not there.
        :raises PolicyRefused: when the login may not read it.
        :raises FedsiloError: when the cluster does not answer.
        """
        return json.loads(
            self.call("get", resource, *arguments, *self._namespace_arguments(namespace), "--output=json")
        )

    def find(self, resource: str, name: str, *, namespace: str | None = None) -> Any | None:
        """One object, or None where there is none of that name; raises as `get` otherwise."""
        arguments = ("get", resource, name, *self._namespace_arguments(namespace), "--output=json")
        done = self._run(arguments, b"")
        if done.returncode != 0 and b"(NotFound)" in done.stderr:
            return None
        return json.loads(_output(arguments, done))

    def call(self, *arguments: str, given: bytes = b"") -> bytes:
        """Standard output of a call that must succeed; raises as `get`.

        :param given: what the call reads on its standard input.
        """
        return _output(arguments, self._run(arguments, given))

    def context_namespace(self) -> str:
        """The namespace that is meant when none is named."""
        if self.namespace:
            return self.namespace
        view = json.loads(self.call("config", "view", "--minify", "--output=json"))
        contexts = view.get("contexts") or [{}]
        return str((contexts[0].get("context") or {}).get("namespace") or "default")

    def user(self) -> str | None:
        """Who the API server takes this login for; None where it does not say."""
        try:
            review = json.loads(self.call("auth", "whoami", "--output=json"))
            name = review["status"]["userInfo"]["username"]
        except (FedsiloError, ValueError, KeyError, TypeError):
            return None
        return name if isinstance(name, str) and name else None

    def _namespace_arguments(self, namespace: str | None) -> Sequence[str]:
        namespace = namespace or self.namespace
        return ("--namespace", namespace) if namespace else ()

    def _run(self, arguments: Iterable[str], given: bytes) -> subprocess.CompletedProcess[bytes]:
        command = self.command(f"--request-timeout={REQUEST_TIMEOUT_SECONDS}s", *arguments)
        # Without input of ours the person's terminal stays connected, for a login that asks there.
        stdin = subprocess.PIPE if given else None
        with run_program(command, stdin=stdin) as process:
            printed, stderr = 0, b""
            while True:
                try:
                    output, errors = process.communicate(given or None, timeout=_SILENCE_SECONDS)
                except subprocess.TimeoutExpired as waiting:
                    given, stderr = b"", waiting.stderr or stderr
                    sys.stderr.write(_without_control_characters(stderr[printed:]))
                    sys.stderr.flush()
                    printed = len(stderr)
                else:
                    return subprocess.CompletedProcess(command, process.returncode, output, errors)


def _without_control_characters(stderr: bytes) -> str:
    """What kubectl prints while it waits, such as the prompt of a login; it may not control the terminal."""
    return "\n".join(one_line(line) for line in stderr.decode(errors="replace").split("\n"))


def _output(arguments: Sequence[str], done: subprocess.CompletedProcess[bytes]) -> bytes:
    if done.returncode != 0:
        raise failure(arguments, done.stderr)
    return done.stdout


def failure(arguments: Sequence[str], stderr: bytes) -> FedsiloError:
    """kubectl's standard error as one line, in the error class that has its exit code."""
    text = stderr.decode(errors="replace")
    if denied := _FORBIDDEN_ANSWER.search(text):
        resource = ".".join(part for part in (denied["resource"], denied["group"]) if part)
        where = f" in namespace {denied['namespace']}" if denied["where"] else " in all namespaces"
        return PolicyRefused(
            f"this login may not {denied['verb']} {resource}{where}; "
            f"ask for a role with the verb {denied['verb']} on {resource}"
        )
    if missing := re.search(r"the server doesn't have a resource type \"([^\"]+)\"", text):
        return ManifestInvalid(
            f"{missing[1]}: this cluster does not know it; choose another with --context, or install fedsilo there"
        )
    # client-go logs its attempts before kubectl prints the result
    lines = [line for line in text.splitlines() if line.strip() and not re.match(r"[EIW]\d{4} ", line)]
    reason = plain_line(lines[-1]).removeprefix("error: ") if lines else "it said nothing"
    if "(NotFound)" in text or re.search(
        r"context .* does not exist|context was not found|stat .*: no such file", text
    ):
        return ManifestInvalid(reason)
    return FedsiloError(f"kubectl {arguments[0]}: {reason}")
