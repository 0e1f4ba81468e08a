"""Arguments of the processes that have controllers: the operator, and the connector of an institution's own cluster."""

from __future__ import annotations

import argparse
import os
import socket
from pathlib import Path

from fedsilo.errors import ManifestInvalid
from fedsilo_operator.runtime.operator import WORKERS
from fedsilo_operator.settings import PLATFORMS

NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
PORT = 8080


def add_controller_arguments(parser: argparse.ArgumentParser) -> None:
    """Images of the agents, and how this process stands beside others of its kind."""
    parser.add_argument("--guard-image", required=True, help="image of guards whose Silo names none")
    parser.add_argument("--trainer-image", required=True, help="image of trainers whose job names none")
    parser.add_argument(
        "--platform",
        choices=PLATFORMS,
        default="kubernetes",
        help="openshift assigns user ids itself, so that pods name none (default: kubernetes)",
    )
    parser.add_argument("--namespace", help="that of this process (default: POD_NAMESPACE, else the pod's)")
    parser.add_argument(
        "--identity", default=socket.gethostname(), help="name as leader (default: host name)"
    )
    parser.add_argument(
        "--workers", type=int, default=WORKERS, help="objects that each controller works on at once"
    )
    parser.add_argument(
        "--health-port", type=int, default=PORT, help="port of /healthz, /readyz and /metrics"
    )


def own_namespace(args: argparse.Namespace) -> str:
    """The namespace of this process.

    :raises ManifestInvalid: when it is unknown.
    """
    found: str = args.namespace or os.environ.get("POD_NAMESPACE", "")
    if not found and NAMESPACE_FILE.exists():
        found = NAMESPACE_FILE.read_text().strip()
    if not found:
        raise ManifestInvalid(
            "the namespace of this process is unknown: give --namespace or set POD_NAMESPACE"
        )
    return found
