"""`fedsilo-operator` reconciles FederatedJobs and SiloAgents until a signal ends it.

Several may run at once: one leads, the others keep their caches warm and take over when it ends. Exit codes are those
of `fedsilo.errors`; 0 after SIGTERM or SIGINT, as Kubernetes expects it of what it stops.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from urllib.parse import urlsplit

from fedsilo.errors import ManifestInvalid
from fedsilo.hub.proxy import proxy_for
from fedsilo.logs import add_log_arguments, start_logging
from fedsilo.process import Arguments, run_until_done, run_until_signalled, version
from fedsilo_operator.arguments import add_controller_arguments, own_namespace
from fedsilo_operator.settings import API_SERVER_PORTS, PLATFORMS

LEASE_NAME = "fedsilo-operator"


def main(argv: list[str] | None = None) -> int:
    """Run the operator until a signal; returns the exit code."""
    start_logging()
    return run_until_done(lambda: asyncio.run(_operate_until_signalled(_arguments(argv))))


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = Arguments(
        prog="fedsilo-operator",
        description="Reconcile FederatedJobs and SiloAgents until told to stop.",
        epilog="KUBECONFIG names the cluster; without it, the service account of the pod does.",
    )
    parser.add_argument("--aggregator-image", required=True, help="image of aggregators")
    add_controller_arguments(parser)
    parser.add_argument(
        "--api-server-ports",
        type=_ports,
        default=API_SERVER_PORTS,
        metavar="PORT,...",
        help="ports of the API server, which network policies leave open (default: 443,6443)",
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
        "--guard-proxy",
        type=_proxy,
        metavar="URL",
        help="proxy for guards whose aggregator is outside of the cluster, without user and password (default: none)",
    )
    parser.add_argument(
        "--guard-no-proxy", default="", metavar="HOSTS", help="what guards reach without it, as in NO_PROXY"
    )
    parser.add_argument(
        "--job-priority-class",
        metavar="NAME",
        help="PriorityClass of pods for which neither job nor Silo names one (default: the cluster's)",
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


def _proxy(text: str) -> str:
    """A proxy's address, which stands in the open in guards' pods.

    :raises argparse.ArgumentTypeError: when it is none, or has a login.
    """
    try:
        found = proxy_for("outside.invalid", 443, {"HTTPS_PROXY": text})
    except ManifestInvalid as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if found is None or found.authorization is not None:
        raise argparse.ArgumentTypeError("has a user or a password, or is empty; give the address alone")
    return found.url


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


async def _operate(args: argparse.Namespace) -> None:
    # Imported here so that `--help` does not wait for the client.
    from fedsilo.http.probes import probes
    from fedsilo_operator.cluster.api_server import api_server
    from fedsilo_operator.dashboard.serving import dashboard
    from fedsilo_operator.job.controller import JobController
    from fedsilo_operator.keys import load_master
    from fedsilo_operator.metrics import exposition
    from fedsilo_operator.objects import Ref
    from fedsilo_operator.runtime.controller import Reconciler
    from fedsilo_operator.runtime.election import Election, new_holder
    from fedsilo_operator.runtime.operator import Operator
    from fedsilo_operator.runtime.store import MAX_REQUESTS, Store, WriteThroughCluster
    from fedsilo_operator.settings import OutsideSettings, Settings
    from fedsilo_operator.silo.controller import SiloController

    namespace = own_namespace(args)
    async with api_server() as server:
        settings = Settings(
            aggregator_image=args.aggregator_image,
            guard_image=args.guard_image,
            trainer_image=args.trainer_image,
            namespace=namespace,
            master=await load_master(server, namespace),
            api_server_ports=args.api_server_ports,
            metrics_from=args.metrics_from,
            user=PLATFORMS[args.platform],
            priority_class=args.job_priority_class,
            gateway=args.gateway,
            outside=OutsideSettings(
                proxy=args.guard_proxy,
                no_proxy=args.guard_no_proxy,
                proxy_port=args.guard_proxy and (urlsplit(args.guard_proxy).port or 80),
            ),
        )
        store = Store()
        cluster = WriteThroughCluster(server, store, MAX_REQUESTS)
        controllers: list[Reconciler] = [
            JobController(cluster, store, settings),
            SiloController(cluster, store, settings),
        ]
        election = Election(server, Ref(namespace, LEASE_NAME), new_holder(args.identity))
        operator = Operator(cluster, store, controllers, election, args.workers)

        async with AsyncExitStack() as served:
            metrics = exposition("operator", operator, store, server.requests)
            probed = probes(operator.unready_reason, metrics, args.health_port)
            await served.enter_async_context(probed)
            if args.dashboard_port:
                shown = dashboard(cluster, store, args.dashboard_port, args.dashboard_tls)
                await served.enter_async_context(shown)
            await operator.run()


if __name__ == "__main__":
    sys.exit(main())
