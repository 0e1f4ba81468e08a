"""`python -m hack.cluster`: the test cluster from the command line."""

from __future__ import annotations

import argparse
import sys

from hack.cluster import apiserver, lifecycle, status
from hack.cluster.errors import ClusterError


def main() -> int:
    """Run one command; its exit code."""
    arguments = _parser().parse_args()
    try:
        match arguments.command:
            case "up":
                lifecycle.up()
            case "down":
                lifecycle.down()
            case "status":
                return status.show()
            case "api-up":
                print(apiserver.start(arguments.name, controllers=arguments.controllers))
            case "api-down":
                apiserver.stop(arguments.name)
    except ClusterError as error:
        print(f"cluster: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print(
            "cluster: interrupted; `make cluster-up` starts anew, `make cluster-down` removes it",
            file=sys.stderr,
        )
        return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m hack.cluster", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("up", help="start the one-node cluster")
    commands.add_parser("down", help="stop it and remove everything but the caches")
    commands.add_parser("status", help="what runs; exit code 0 if and only if the cluster is healthy")
    start = commands.add_parser(
        "api-up", help="start an API server without a node and print its kubeconfig's path"
    )
    start.add_argument("name")
    start.add_argument(
        "--controllers",
        action="store_true",
        help="also garbage collection, namespaces and service accounts",
    )
    commands.add_parser("api-down", help="stop such an API server").add_argument("name")
    return parser


if __name__ == "__main__":
    sys.exit(main())
