"""`fedsilo leave` lets an institution with a cluster of its own leave its hub."""

from __future__ import annotations

import argparse

from fedsilo.api.annotations import LEAVE
from fedsilo.api.conditions import ConditionType
from fedsilo.api.observed import condition, status_of
from fedsilo.cli.cluster import asking, enrolment
from fedsilo.cli.cluster.kubectl import Kubectl
from fedsilo.cli.confirmation import agreed
from fedsilo.errors import ManifestInvalid


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the silo's name, its cluster and `--yes` to the arguments of `fedsilo leave`."""
    enrolment.add_arguments(parser)
    enrolment.add_question(parser)


def run(args: argparse.Namespace) -> int:
    """Ask the institution's own controller to leave, by an annotation of the Silo.

    :raises ManifestInvalid: when it follows no hub from this cluster, or nobody can be asked.
    """
    kubectl = Kubectl.of(args)
    silo = asking.own_silo(
        kubectl, args.silo, "it leaves from there, or kubectl fedsilo revoke ends its part"
    )
    of = f"{silo['metadata']['namespace']}/{args.silo}"
    if condition(silo, ConditionType.HUB_REACHED) is None and status_of(silo).get("followed") is None:
        raise ManifestInvalid(f"silo {of} follows no hub; delete the Silo to end its part in every job")
    if LEAVE in (silo["metadata"].get("annotations") or {}):
        print(f"silo {of} leaves already; its condition HubReached says how far it is")
        return 0
    if not args.yes and not agreed(f"End the part of silo {of} in every job, and leave the consortium?"):
        print("nothing was changed")
        return 0
    asking.annotate(kubectl, silo, LEAVE, "true")
    print(f"silo {of} leaves; its condition HubReached says when the hub knows it")
    return 0
