"""`fedsilo invite` makes the hub's side of an institution outside of the cluster, and prints its invitation."""

from __future__ import annotations

import argparse
import hashlib
import json
import secrets
import sys
from datetime import UTC, datetime, timedelta

from fedsilo.api.invitation import SiloInvitation
from fedsilo.api.notations import Time
from fedsilo.api.timestamps import timestamp
from fedsilo.cli.cluster import enrolment
from fedsilo.cli.cluster.federation import SILOS
from fedsilo.cli.cluster.kubectl import Kubectl
from fedsilo.errors import ManifestInvalid

TOKEN_BYTES = 32
MAX_DAYS = 90


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The silo, and how long the invitation lasts."""
    enrolment.add_arguments(parser)
    parser.add_argument(
        "--days", type=int, default=7, metavar="N", help=f"days until it ends, 1 to {MAX_DAYS} (default: 7)"
    )


def run(args: argparse.Namespace) -> int:
    """Write the invitation's digest into the Silo, which is made where there is none, and print the invitation.

    A key that was revoked does not come back with a new invitation: the next one has to be accepted.

    :raises ManifestInvalid: when the Silo is one of this cluster.
    """
    if not 1 <= args.days <= MAX_DAYS:
        raise ManifestInvalid(f"--days: {args.days}: is not from 1 to {MAX_DAYS}; give another number")
    kubectl = Kubectl.of(args)
    namespace, token = kubectl.context_namespace(), secrets.token_urlsafe(TOKEN_BYTES)
    expires = Time(timestamp(datetime.now(UTC) + timedelta(days=args.days)))
    invitation = {"tokenDigest": hashlib.sha256(token.encode()).hexdigest(), "expires": expires}
    if kubectl.find(SILOS, args.silo) is None:
        metadata = {"name": args.silo, "namespace": namespace}
        spec = {"remote": {"invitation": invitation}}
        silo = {"apiVersion": "fedsilo.io/v1alpha1", "kind": "Silo", "metadata": metadata, "spec": spec}
        given = json.dumps(silo).encode()
        kubectl.call("create", f"--field-manager={enrolment.MANAGER}", "--filename=-", given=given)
    else:
        found = enrolment.remote_silo(kubectl, args.silo)
        revoked = found["spec"]["remote"].get("revoked", False)
        change = {"revoked": False, "publicKey": None} if revoked else {}
        enrolment.patch(kubectl, found, {"invitation": invitation, **change})
    hub = enrolment.hub_of(kubectl, args.silo)
    print(SiloInvitation.of(hub, f"{namespace}/{args.silo}", token, expires).to_yaml(), end="")
    print(
        f"whoever has this file can register a key as silo {namespace}/{args.silo}, once, until {expires}; "
        "nobody takes part before kubectl fedsilo accept",
        file=sys.stderr,
    )
    return 0
