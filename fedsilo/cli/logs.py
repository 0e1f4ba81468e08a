"""`fedsilo logs` prints the logs of a job's pods."""

from __future__ import annotations

import argparse
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from typing import IO

from fedsilo.api.messages import closest
from fedsilo.api.observed import Object
from fedsilo.cli.cluster.federation import get_job, of_job, silo_refs
from fedsilo.cli.cluster.kubectl import Kubectl, add_cluster_arguments, failure
from fedsilo.cli.cluster.pods import COMPONENT_NAMES, ComponentView, components, why_no_pod, why_silent
from fedsilo.errors import ManifestInvalid
from fedsilo.logs import as_text
from fedsilo.standard_streams import has_lost_reader


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The job, and which of its pods."""
    parser.add_argument("job", metavar="JOB", help="name of the job")
    parser.add_argument("--silo", metavar="NAME", help="guard and trainer of this silo only")
    parser.add_argument("--component", choices=COMPONENT_NAMES, help="this component only")
    parser.add_argument("-f", "--follow", action="store_true", help="go on as the pods go on")
    parser.add_argument(
        "-p", "--previous", action="store_true", help="the pod before the present one, that of a restart"
    )
    parser.add_argument(
        "--json", action="store_true", help="lines as they were written, one JSON object each"
    )
    add_cluster_arguments(parser)


@dataclass(frozen=True)
class LogSource:
    """A pod that is read, and the prefix before its lines; without a prefix they are as they were written."""

    pod: Object
    prefix: str


def run(args: argparse.Namespace) -> int:
    """Print the logs, and on standard error why a component has none.

    :raises ManifestInvalid: when the job or the silo is not there, or no component has a log.
    """
    kubectl = Kubectl.of(args)
    job = get_job(kubectl, args.job)
    pods, closed = of_job(kubectl, "pods", job)
    wanted = [component for component in components(job, pods) if _is_wanted(component, args)]
    if args.silo is not None and not any(component.silo == args.silo for component in wanted):
        raise ManifestInvalid(_no_silo(args, job))
    sources, silent = [], []
    for component in wanted:
        pod, reason = _choose(component, job, closed, previous=args.previous)
        if pod is None:
            silent.append(f"{component.label}: {reason}")
        else:
            sources.append(LogSource(pod, f"[{component.label}] " if len(wanted) > 1 else ""))
    if not sources:
        raise ManifestInvalid("\n".join(silent))
    for line in silent:
        print(f"fedsilo: {line}", file=sys.stderr)
    sys.stdout.flush()
    Reader(kubectl, follow=args.follow, raw=args.json).read(sources)
    return 0


def _is_wanted(component: ComponentView, args: argparse.Namespace) -> bool:
    return (args.silo is None or component.silo == args.silo) and args.component in (None, component.name)


def _no_silo(args: argparse.Namespace, job: Object) -> str:
    names = list(silo_refs(job))
    if args.silo in names:
        return f"--component {args.component}: is not in a silo; leave out --silo {args.silo}"
    return f"--silo {args.silo}: job {args.job} has no silo of that name; {closest(args.silo, names)}"


def _choose(
    component: ComponentView, job: Object, closed: Sequence[str], *, previous: bool
) -> tuple[Object | None, str | None]:
    """The pod to read, or why there is none."""
    if not component.pods:
        return None, why_no_pod(component, job, closed)
    if previous:
        return (component.pods[1], None) if len(component.pods) > 1 else (None, "it has had one pod only")
    reason = why_silent(component.pods[0])
    if reason is None:
        return component.pods[0], None
    name = component.pods[0]["metadata"]["name"]
    earlier = "; --previous shows the pod before it" if len(component.pods) > 1 else ""
    return None, f"pod {name} has no log yet: {reason}{earlier}"


class Reader:
    """Copies logs to standard output: one after another, or all at once as they are written."""

    def __init__(self, kubectl: Kubectl, *, follow: bool, raw: bool) -> None:
        self._kubectl = kubectl
        self._follow = follow
        self._raw = raw
        self._writing = threading.Lock()
        self._starting = threading.Lock()
        self._over = False
        self._running: list[subprocess.Popen[bytes]] = []

    def read(self, sources: Sequence[LogSource]) -> None:
        """Return when all logs have ended; whatever happens, no kubectl is left behind."""
        with ThreadPoolExecutor(len(sources) if self._follow else 1) as threads:
            try:
                copies = [threads.submit(self._copy, source) for source in sources]
                for copy in as_completed(copies):
                    copy.result()
            finally:
                self._end()

    def _end(self) -> None:
        """Have no kubectl run, nor begin: an interruption may come before the last copy is known."""
        with self._starting:
            self._over = True
        for process in self._running:
            process.terminate()

    def _start(self, command: Sequence[str]) -> subprocess.Popen[bytes] | None:
        with self._starting:
            if self._over:
                return None
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            self._running.append(process)
            return process

    def _copy(self, source: LogSource) -> None:
        metadata = source.pod["metadata"]
        arguments = ["logs", metadata["name"], "--namespace", metadata["namespace"]]
        command = self._kubectl.command(*arguments, *(["--follow"] if self._follow else []))
        started = self._start(command)
        if started is None:
            return
        with started as process:
            assert process.stdout and process.stderr
            prefix = source.prefix.encode()
            for line in _lines(process.stdout):
                with self._writing:
                    sys.stdout.buffer.write(prefix + (line if self._raw else _for_people(line)))
                    sys.stdout.buffer.flush()
                if has_lost_reader(sys.stdout):
                    self._end()
            said = process.stderr.read()
        if process.returncode > 0:
            print(f"fedsilo: {source.prefix}{failure(arguments, said)}", file=sys.stderr)


def _for_people(line: bytes) -> bytes:
    if not line.startswith(b"{"):
        return line
    return as_text(line.decode(errors="replace").rstrip("\n")).encode() + b"\n"


def _lines(stream: IO[bytes]) -> Iterator[bytes]:
    """Lines, each with its end: the next prefix begins a line even where a process died in the middle of one."""
    for line in stream:
        yield line if line.endswith(b"\n") else line + b"\n"
