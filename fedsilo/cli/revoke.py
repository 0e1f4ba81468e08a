"""`fedsilo revoke` makes the hub refuse every further request of an institution outside of the cluster."""

from __future__ import annotations

import argparse

from fedsilo.cli.cluster import enrolment
from fedsilo.cli.cluster.kubectl import Kubectl
from fedsilo.cli.confirmation import agreed


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the silo's name, its cluster and `--yes` to the arguments of `fedsilo revoke`."""
    enrolment.add_arguments(parser)
    enrolment.add_question(parser)


def run(args: argparse.Namespace) -> int:
    """Set `spec.remote.revoked` of the Silo.

    :raises ManifestInvalid: when the Silo is one of this cluster, or nobody can be asked.
    """
    kubectl = Kubectl.of(args)
    silo = enrolment.remote_silo(kubectl, args.silo)
    of = f"{silo['metadata']['namespace']}/{args.silo}"
    if silo["spec"]["remote"].get("revoked"):
        print(f"silo {of} is revoked already")
        return 0
    if not args.yes and not agreed(f"Refuse every further request of silo {of}, those of running jobs too?"):
        print("nothing was revoked")
        return 0
    enrolment.patch(kubectl, silo, {"revoked": True})
    print(f"silo {of} is revoked")
    return 0
