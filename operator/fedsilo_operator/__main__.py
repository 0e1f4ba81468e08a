"""`fedsilo-operator`: reconcile FederatedJobs and SiloAgents until a signal ends it.

Several may run at once: one leads, the others keep their caches warm and take over when it ends. Exit codes are those
of `fedsilo.errors`; 0 after SIGTERM or SIGINT, as Kubernetes expects it of what it stops.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import socket
import sys
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any
from uuid import uuid4

from fedsilo.errors import ManifestInvalid
from fedsilo.logs import add_log_arguments, start_logging
from fedsilo.process import Arguments, run_until_done, version
from fedsilo_operator.runtime.operator import WORKERS
from fedsilo_operator.settings import API_SERVER_PORTS

NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
LEASE_NAME = "fedsilo-operator"
PORT = 8080


def main(argv: list[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    start_logging()
    return run_until_done(lambda: asyncio.run(_operate_until_signalled(_arguments(argv))))


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = Arguments(
        prog="fedsilo-operator",
        description="Reconcile FederatedJobs and SiloAgents until told to stop.",
        epilog="KUBECONFIG names the cluster; without it, the service account of the pod does.",
    )
    parser.add_argument("--aggregator-image", required=True, help="image of aggregators")
    parser.add_argument("--guard-image", required=True, help="image of guards whose Silo names none")
    parser.add_argument("--trainer-image", required=True, help="image of trainers whose job names none")
    parser.add_argument(
        "--api-server-ports",
        type=_ports,
        default=API_SERVER_PORTS,
        metavar="PORT,...",
        help="ports of the API server, which network policies leave open (default: 443,6443)",
    )
    parser.add_argument("--namespace", help="the operator's own (default: POD_NAMESPACE, else the pod's)")
    parser.add_argument(
        "--identity", default=socket.gethostname(), help="name as leader (default: host name)"
    )
    parser.add_argument(
        "--workers", type=int, default=WORKERS, help="objects that each controller works on at once"
    )
    parser.add_argument(
        "--health-port", type=int, default=PORT, help="port of /healthz, /readyz and /metrics"
    )
    parser.add_argument(
        "--metrics-from",
        type=_labels,
        metavar="LABEL=VALUE,...",
        help="aggregators and guards serve metrics; namespaces with these labels may ask aggregators (default: none)",
    )
    parser.add_argument(
        "--gateway",
        action="store_true",
        help="aggregators admit the gateway in the operator's namespace, by which institutions outside come",
    )
    parser.add_argument(
        "--dashboard-port", type=int, default=0, help="port of the dashboard, on 127.0.0.1 (default: none)"
    )
    parser.add_argument(
        "--dashboard-tls",
        type=Path,
        metavar="DIRECTORY",
        help="serve it to the network with tls.crt and tls.key, for those whose token may list FederatedJobs",
    )
    add_log_arguments(parser)
    parser.add_argument("--version", action="version", version=version())
    args = parser.parse_args(argv)
    if args.dashboard_tls is not None and not args.dashboard_port:
        parser.error("--dashboard-tls: needs --dashboard-port, the port to serve at")
    return args


def _ports(text: str) -> tuple[int, ...]:
    """Ports, separated by commas.

    :raises argparse.ArgumentTypeError: when one is none.
    """
    ports = [part.strip() for part in text.split(",")]
    for port in ports:
        if not port.isdecimal() or not 0 < int(port) < 65536:
            raise argparse.ArgumentTypeError(
                f"{port!r} is no port; give numbers from 1 to 65535 like 443,6443"
            )
    return tuple(map(int, ports))


def _labels(text: str) -> dict[str, str]:
    """Labels, separated by commas.

    :raises argparse.ArgumentTypeError: when one is none.
    """
    pairs = [pair.partition("=") for pair in text.split(",")]
    if not all(name and sign for name, sign, _ in pairs):
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form label=value,label=value")
    return {name: value for name, _, value in pairs}


async def _operate_until_signalled(args: argparse.Namespace) -> None:
    start_logging(args.log_format)
    await run_until_signalled(_operate(args))


async def run_until_signalled(endless: Coroutine[Any, Any, None]) -> None:
    """Run something without end until SIGTERM or SIGINT."""
    work = asyncio.ensure_future(endless)
    signalled = False

    def stop() -> None:
        nonlocal signalled
        signalled = True
        work.cancel()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    try:
        await work
    except asyncio.CancelledError:
        if not signalled:
            raise


async def _operate(args: argparse.Namespace) -> None:
    # Imported here so that `--help` does not wait for the client.
    from fedsilo.probes import probes
    from fedsilo_operator.cluster.api_server import api_server
    from fedsilo_operator.dashboard.serving import dashboard
    from fedsilo_operator.job.controller import JobController
    from fedsilo_operator.keys import load_master
    from fedsilo_operator.metrics import exposition
    from fedsilo_operator.objects import Ref
    from fedsilo_operator.runtime.controller import Reconciler
    from fedsilo_operator.runtime.election import Election
    from fedsilo_operator.runtime.operator import Operator
    from fedsilo_operator.runtime.store import Store, WriteThrough
    from fedsilo_operator.settings import Settings
    from fedsilo_operator.silo.controller import SiloController

    namespace = args.namespace or own_namespace()
    async with api_server() as server:
        settings = Settings(
            aggregator_image=args.aggregator_image,
            guard_image=args.guard_image,
            trainer_image=args.trainer_image,
            namespace=namespace,
            master=await load_master(server, namespace),
            api_server_ports=args.api_server_ports,
            metrics_from=args.metrics_from,
            gateway=args.gateway,
        )
        store = Store()
        cluster = WriteThrough(server, store)
        controllers: list[Reconciler] = [
            JobController(cluster, store, settings),
            SiloController(cluster, store, settings),
        ]
        # A process that starts again under the same name is another one: its lease must run out first.
        election = Election(server, Ref(namespace, LEASE_NAME), f"{args.identity}_{uuid4().hex[:8]}")
        operator = Operator(cluster, store, controllers, election, args.workers)

        def unready() -> str:
            # Leading or not: a standby takes over at once.
            missing = operator.unsynced
            return f"not listed yet: {', '.join(missing)}" if missing else ""

        async with AsyncExitStack() as served:
            probed = probes(unready, exposition(operator, store), args.health_port)
            await served.enter_async_context(probed)
            if args.dashboard_port:
                shown = dashboard(cluster, store, args.dashboard_port, args.dashboard_tls)
                await served.enter_async_context(shown)
            await operator.run()


def own_namespace() -> str:
    """The namespace of this process.

    :raises ManifestInvalid: when it is unknown.
    """
    found = os.environ.get("POD_NAMESPACE", "")
    if not found and NAMESPACE_FILE.exists():
        found = NAMESPACE_FILE.read_text().strip()
    if not found:
        raise ManifestInvalid("the operator's namespace is unknown: give --namespace or set POD_NAMESPACE")
    return found


if __name__ == "__main__":
    sys.exit(main())
