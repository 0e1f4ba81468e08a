"""Commands of the one-node test cluster, `python -m hack.cluster`."""

from __future__ import annotations

import argparse
import sys

from hack.cluster import apiserver, institutions, lifecycle, status
from hack.cluster.errors import ClusterError
from hack.cluster.paths import INSTITUTION, INSTITUTIONS


def main() -> int:
    """Run one command of the test cluster and return its exit code."""
    arguments = _parser().parse_args()
    institution = getattr(arguments, "institution", None)
    try:
        if institution is not None and institution != INSTITUTION:
            return institutions.run(institution, arguments.command)
        match arguments.command:
            case "up":
                lifecycle.start_cluster()
            case "down":
                institutions.take_down()
                lifecycle.remove_cluster()
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
    for name, summary in (
        ("up", "start the one-node cluster"),
        ("down", "stop it and remove everything but the caches; the hub's with those beside it"),
        ("status", "what runs; exit code 0 if and only if the cluster is healthy"),
    ):
        commands.add_parser(name, help=summary).add_argument(
            "--institution", choices=INSTITUTIONS, help="whose cluster (default: the hub's)"
        )
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
