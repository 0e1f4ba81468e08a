"""`fedsilo-isolation` checks from inside a trainer's pod that its network is closed, before any code of the job runs.

It runs first in that pod, from the guard's image: all containers of a pod share one network, and the trainer's image is
the job's choice. Rules that follow from a NetworkPolicy reach a new pod a moment after its first process has started;
where the network plug-in knows no policies, or where another policy opens what the trainer's own closes, they never do.

Every start of a trainer waits for it, so it imports little: of the SiloAgent, which the operator has written, it reads
two fields.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from typing_extensions import override

from fedsilo.errors import ManifestInvalid, PolicyRefused
from fedsilo.logs import add_log_arguments, start_logging
from fedsilo.process import Arguments, exit_on_sigterm, run_until_done, version

log = logging.getLogger("fedsilo.isolation")

PATIENCE_SECONDS = 60.0
"""Time that the cluster gets to close the network."""

QUIET_SECONDS = 2.0
"""Time without any answer after which the network counts as closed."""

QUIET_PROBES = 4
"""Probes in a row that must be silent, too: a process that stood still for that time has asked nothing."""

POLL_SECONDS = 0.1
"""Pause between two probes."""

TIMEOUT_SECONDS = 0.5
"""Time for one answer: policies drop packets, so that a closed network is silent."""

RESOLVER = Path("/etc/resolv.conf")
"""Where every pod finds its name servers."""


class Target(NamedTuple):
    """An address that a pod could reach in an open network.

    :param question: to send over UDP; without one, a TCP connection is the probe.
    """

    host: str
    port: int
    question: bytes = b""

    @override
    def __str__(self) -> str:
        return f"{self.host}:{self.port} ({'UDP' if self.question else 'TCP'})"


def main(argv: list[str] | None = None) -> int:
    """Check that the network is closed; returns the exit code."""
    start_logging()
    exit_on_sigterm()
    return run_until_done(lambda: _run(_arguments(argv)))


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = Arguments(prog="fedsilo-isolation", description="Wait until this pod's network is closed.")
    parser.add_argument("--agent", type=Path, required=True, help="the SiloAgent (JSON)")
    add_log_arguments(parser)
    parser.add_argument("--version", action="version", version=version())
    return parser.parse_args(argv)


def _run(args: argparse.Namespace) -> None:
    start_logging(args.log_format)
    targets = probe_targets(*aggregator(args.agent))
    await_closed(targets)
    log.info("the network is closed: no answer from %s", ", ".join(map(str, targets)))


def aggregator(agent: Path) -> tuple[str, str | None]:
    """URL of the aggregator, and its address inside the cluster if it is there.

    :raises ManifestInvalid: where the file is not there or is no SiloAgent.
    """
    try:
        trust = json.loads(agent.read_bytes())["spec"]["trust"]
        return str(trust["url"]), trust.get("address")
    except FileNotFoundError:
        raise ManifestInvalid(f"{agent}: does not exist; name the SiloAgent's file") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ManifestInvalid(
            f"{agent}: is no SiloAgent in JSON ({type(error).__name__}: {error}); name another"
        ) from error


def probe_targets(
    url: str, address: str | None, environment: Mapping[str, str] = os.environ, resolver: Path = RESOLVER
) -> list[Target]:
    """The API server and name servers that every pod knows, and the aggregator."""
    targets = []
    if host := environment.get("KUBERNETES_SERVICE_HOST"):
        targets.append(Target(host, int(environment.get("KUBERNETES_SERVICE_PORT", "443"))))
    if address is not None:
        targets.append(Target(address, urlsplit(url).port or 443))
    lines = [line.split() for line in resolver.read_text().splitlines()] if resolver.exists() else []
    # A server answers for the cluster's own domain at once, also one that cannot reach others.
    domain = next((line[1] for line in lines if line[:1] == ["search"] and len(line) > 1), "")
    for line in lines:
        if line[:1] == ["nameserver"] and len(line) > 1:
            targets += [Target(line[1], 53), Target(line[1], 53, _question(domain))]
    return targets


def _question(domain: str) -> bytes:
    """A DNS query for a domain's addresses (RFC 1035, section 4)."""
    labels = [label.encode() for label in domain.split(".") if label]
    name = b"".join(bytes([len(label)]) + label for label in labels) + b"\0"
    return b"\xfe\xd5\x01\0\0\x01\0\0\0\0\0\0" + name + b"\0\x01\0\x01"


def await_closed(
    targets: Sequence[Target],
    patience: float = PATIENCE_SECONDS,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Return when none of the targets has answered for a while.

    :raises PolicyRefused: when one still answers after `patience` seconds, or there is none to try.
    """
    if not targets:
        raise PolicyRefused(
            "isolation: no address of API server, aggregator or name server is known, so nothing shows that the "
            "network is closed; run the trainer in a pod of a cluster"
        )
    start = last = clock()
    silent = 0
    with ThreadPoolExecutor(len(targets)) as pool:
        while silent < QUIET_PROBES or clock() - last < QUIET_SECONDS:
            answers = zip(targets, pool.map(_answers, targets), strict=True)
            found = [target for target, answer in answers if answer]
            silent += 1
            if found:
                last, silent = clock(), 0
                if last - start > patience:
                    raise _open(found, patience)
            sleep(POLL_SECONDS)


def _answers(target: Target) -> bool:
    try:
        if not target.question:
            socket.create_connection(target[:2], timeout=TIMEOUT_SECONDS).close()
            return True
        with socket.socket(
            socket.AF_INET6 if ":" in target.host else socket.AF_INET, socket.SOCK_DGRAM
        ) as connection:
            connection.settimeout(TIMEOUT_SECONDS)
            connection.connect(target[:2])
            connection.send(target.question)
            connection.recv(512)
    except OSError:  # dropped, or rejected as some plug-ins do
        return False
    return True


def _open(found: Sequence[Target], patience: float) -> PolicyRefused:
    names = ", ".join(map(str, found))
    return PolicyRefused(
        f"isolation: {names} can be reached {patience:.0f} s after the start although the trainer's NetworkPolicy "
        "forbids it: another NetworkPolicy of the namespace selects the trainer's pod and opens the way (policies add "
        "up), or the cluster's network plug-in enforces none; take that policy away, or install a plug-in that "
        "enforces them, since code of the job must not run next to data with a network"
    )


if __name__ == "__main__":
    sys.exit(main())
