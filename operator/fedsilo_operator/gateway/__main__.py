"""`python -m fedsilo_operator.gateway` serves the address at which institutions reach the hub, until a signal ends it.

Several may run at once. Exit codes are those of `fedsilo.errors`; 0 after SIGTERM or SIGINT.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, Never

from fedsilo.errors import ManifestInvalid
from fedsilo.http.listening import EVERY_ADDRESS
from fedsilo.logs import add_log_arguments, start_logging
from fedsilo.process import Arguments, run_until_done, run_until_signalled, version
from fedsilo_operator.gateway.limits import Limits

PORT, HEALTH_PORT = 8443, 8080


def main(argv: list[str] | None = None) -> int:
    """Run the gateway until a signal; returns the exit code."""
    start_logging()
    return run_until_done(lambda: _run(_arguments(argv)))


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    limits = Limits()
    parser = Arguments(
        prog="fedsilo-gateway",
        description="Serve institutions outside of the cluster until told to stop.",
        epilog="KUBECONFIG names the cluster; without it, the service account of the pod does.",
    )
    parser.add_argument(
        "--url", required=True, help="address at which institutions reach this gateway, https://..."
    )
    parser.add_argument(
        "--ca",
        type=Path,
        metavar="FILE",
        help="authority of that address's certificate (default: the system's)",
    )
    parser.add_argument(
        "--key",
        type=Path,
        required=True,
        metavar="FILE",
        help="Ed25519 key (PEM) that signs what silos are told",
    )
    parser.add_argument("--port", type=int, default=PORT, help="port to listen on")
    parser.add_argument(
        "--tls",
        type=Path,
        metavar="DIRECTORY",
        help="serve HTTPS with its tls.crt and tls.key (default: HTTP, behind what ends TLS in the same cluster)",
    )
    parser.add_argument(
        "--health-port", type=int, default=HEALTH_PORT, help="port of /healthz, /readyz and /metrics"
    )
    parser.add_argument(
        "--max-open-requests",
        type=int,
        default=limits.open_requests,
        help="requests of one silo under way at once",
    )
    parser.add_argument(
        "--max-requests-per-second",
        type=float,
        default=limits.requests_per_second,
        help="requests of one silo, on average",
    )
    parser.add_argument(
        "--max-body-bytes", type=int, default=limits.body_bytes, help="largest body of one request"
    )
    add_log_arguments(parser)
    parser.add_argument("--version", action="version", version=version())
    args = parser.parse_args(argv)
    if not args.url.startswith("https://") or args.url.endswith("/"):
        parser.error(
            f"--url: {args.url!r} is no address; give https:// and a host, without a slash at the end"
        )
    for option in ("max_open_requests", "max_requests_per_second", "max_body_bytes"):
        if getattr(args, option) <= 0:
            parser.error(f"--{option.replace('_', '-')}: is not above zero; give a positive number")
    return args


def _run(args: argparse.Namespace) -> None:
    # Imported here, as below, so that `--help` does not wait.
    from fedsilo.http.event_loop import run_event_loop

    run_event_loop(_serve_until_signalled(args))


async def _serve_until_signalled(args: argparse.Namespace) -> None:
    start_logging(args.log_format)
    await run_until_signalled(_serve(args))


async def _serve(args: argparse.Namespace) -> None:
    # Imported here so that `--help` does not wait for the client.
    from fedsilo.http.probes import probes
    from fedsilo.wire import SigningKey
    from fedsilo_operator.certificate import renew_certificate, served_tls
    from fedsilo_operator.cluster.api_server import api_server
    from fedsilo_operator.gateway.hub import HubIdentity
    from fedsilo_operator.gateway.metrics import exposition
    from fedsilo_operator.gateway.running import Gateway
    from fedsilo_operator.runtime.operator import run_until_one_ends

    limits = Limits(
        open_requests=args.max_open_requests,
        requests_per_second=args.max_requests_per_second,
        body_bytes=args.max_body_bytes,
    )
    try:
        ca = None if args.ca is None else args.ca.read_text()
        identity = HubIdentity(SigningKey.load(args.key), args.url, ca)
    except OSError as error:
        raise ManifestInvalid(
            f"{error.filename}: {error.strerror}; give files that this process may read"
        ) from error
    except UnicodeDecodeError as error:
        raise ManifestInvalid(f"{args.ca}: is no text; give the authority's certificate in PEM") from error
    tls = None if args.tls is None else served_tls(args.tls)
    async with api_server() as server:
        gateway = Gateway(server, identity, limits)
        metrics = exposition(gateway.service, gateway.admission, server.requests)
        async with probes(gateway.unready_reason, metrics, args.health_port):
            serving: list[Coroutine[Any, Any, Never]] = [gateway.run(EVERY_ADDRESS, args.port, tls)]
            if tls is not None:
                serving.append(renew_certificate(tls, args.tls))
            await run_until_one_ends(*serving)


if __name__ == "__main__":
    sys.exit(main())
