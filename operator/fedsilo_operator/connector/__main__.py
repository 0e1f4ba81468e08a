"""`python -m fedsilo_operator.connector` lets an institution's own cluster take part in a hub's jobs until a signal.

The silo controller and the connector to the hub in one process, with rights in its own namespace only. Several may run
at once: one leads. Exit codes are those of `fedsilo.errors`; 0 after SIGTERM or SIGINT.
"""

from __future__ import annotations

import argparse
import asyncio
import ipaddress
import sys
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path

from fedsilo.errors import ManifestInvalid
from fedsilo.logs import add_log_arguments, start_logging
from fedsilo.process import Arguments, run_until_done, run_until_signalled, version
from fedsilo_operator.arguments import add_controller_arguments, own_namespace
from fedsilo_operator.settings import PLATFORMS, OutsideSettings

LEASE_NAME = "fedsilo-connector"


def main(argv: list[str] | None = None) -> int:
    """Run the connector until a signal; returns the exit code."""
    start_logging()
    return run_until_done(lambda: asyncio.run(_connect_until_signalled(_arguments(argv))))


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = Arguments(
        prog="fedsilo-connector",
        description="Take part in the jobs of a hub, with guard and trainer in this cluster, until told to stop.",
        epilog="KUBECONFIG names the cluster; without it, the service account of the pod does.",
    )
    parser.add_argument(
        "--invitation",
        type=Path,
        required=True,
        metavar="FILE",
        help="invitation of the hub: its address and, until the key is registered, the token",
    )
    add_controller_arguments(parser)
    parser.add_argument(
        "--dashboard-port", type=int, default=0, help="port of the silo's page, on 127.0.0.1 (default: none)"
    )
    parser.add_argument("--guard-metrics", action="store_true", help="guards serve metrics")
    parser.add_argument(
        "--guard-networks",
        type=_networks,
        default=(),
        metavar="CIDR,...",
        help="addresses to which network policies let guards out (default: any)",
    )
    parser.add_argument(
        "--guard-proxy-secret",
        metavar="NAME",
        help="Secret whose entries HTTPS_PROXY and NO_PROXY guards have as variables",
    )
    parser.add_argument(
        "--guard-proxy-port", type=int, metavar="PORT", help="port to which guards are let out instead"
    )
    parser.add_argument(
        "--guard-authorities",
        metavar="NAME",
        help="ConfigMap whose ca.crt has further authorities for guards",
    )
    add_log_arguments(parser)
    parser.add_argument("--version", action="version", version=version())
    return parser.parse_args(argv)


def _networks(text: str) -> tuple[str, ...]:
    """Networks, separated by commas.

    :raises argparse.ArgumentTypeError: when one is none.
    """
    networks = tuple(part.strip() for part in text.split(","))
    for network in networks:
        try:
            ipaddress.ip_network(network)
        except ValueError:
            raise argparse.ArgumentTypeError(
                f"{network!r} is no network; give addresses like 192.0.2.7/32,2001:db8::/64"
            ) from None
    return networks


async def _connect_until_signalled(args: argparse.Namespace) -> None:
    start_logging(args.log_format)
    await run_until_signalled(_connect(args))


async def _connect(args: argparse.Namespace) -> None:
    # Imported here so that `--help` does not wait for the client.
    from fedsilo.api.invitation import read_invitation_file
    from fedsilo.http.probes import probes
    from fedsilo.hub.client import HubClient, hub_client
    from fedsilo.hub.https import HttpsClient
    from fedsilo.wire import SigningKey, VerifyKey
    from fedsilo_operator.cluster.api_server import api_server
    from fedsilo_operator.cluster.one_namespace import NamespaceCluster
    from fedsilo_operator.connector.connector import Connector, Subscription
    from fedsilo_operator.dashboard.serving import institution_dashboard
    from fedsilo_operator.metrics import exposition
    from fedsilo_operator.objects import Ref
    from fedsilo_operator.runtime.election import Election, new_holder
    from fedsilo_operator.runtime.operator import Operator
    from fedsilo_operator.runtime.store import MAX_REQUESTS, Store, WriteThroughCluster
    from fedsilo_operator.settings import SiloSettings
    from fedsilo_operator.silo.controller import SiloController

    namespace = own_namespace(args)
    invitation = read_invitation_file(args.invitation)
    silo, hub = Ref(*invitation.silo.split("/", 1)), invitation.hub
    if silo.namespace != namespace:
        raise ManifestInvalid(
            f"{args.invitation}: is for silo {silo}, and this is namespace {namespace}; install it in namespace "
            f"{silo.namespace}, which has the same name at the hub"
        )
    # What is wrong with proxy or authorities shows before this process is ready, while an earlier one goes on.
    HttpsClient(hub.url, hub.ca_certificate)
    settings = SiloSettings(
        guard_image=args.guard_image,
        trainer_image=args.trainer_image,
        metrics_from={} if args.guard_metrics else None,
        outside=OutsideSettings(
            args.guard_networks,
            proxy_secret=args.guard_proxy_secret,
            proxy_port=args.guard_proxy_port,
            authorities=args.guard_authorities,
        ),
        user=PLATFORMS[args.platform],
        follows_hub=True,
    )
    subscription = Subscription(silo, VerifyKey.from_text(hub.key).key_id, hub.url, invitation.token)

    def open_hub(key: SigningKey) -> AbstractAsyncContextManager[HubClient]:
        return hub_client(hub, str(silo), key)

    async with api_server() as server:
        store = Store()
        cluster = WriteThroughCluster(NamespaceCluster(server, namespace), store, MAX_REQUESTS)
        connector = Connector(cluster, store, subscription, open_hub)
        election = Election(server, Ref(namespace, LEASE_NAME), new_holder(args.identity))
        operator = Operator(
            cluster,
            store,
            [SiloController(cluster, store, settings), connector],
            election,
            args.workers,
            [connector.follow],
        )
        connector.wake = lambda: operator.controllers[1].queue.add(connector.key)

        async with AsyncExitStack() as served:
            metrics = exposition("connector", operator, store, server.requests)
            await served.enter_async_context(probes(operator.unready_reason, metrics, args.health_port))
            if args.dashboard_port:
                await served.enter_async_context(institution_dashboard(store, args.dashboard_port))
            await operator.run()


if __name__ == "__main__":
    sys.exit(main())
