"""`fedsilo rotate-key` asks a silo in this cluster for another signing key."""

from __future__ import annotations

import argparse

from fedsilo.api.annotations import ROTATE_KEY
from fedsilo.api.observed import status_of
from fedsilo.cli.cluster import asking, enrolment
from fedsilo.cli.cluster.kubectl import Kubectl
from fedsilo.cli.confirmation import agreed
from fedsilo.errors import ManifestInvalid
from fedsilo.wire import VerifyKey


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the silo's name, its cluster and `--yes` to the arguments of `fedsilo rotate-key`."""
    enrolment.add_arguments(parser)
    enrolment.add_question(parser)


def run(args: argparse.Namespace) -> int:
    """Annotate the Silo with the key to replace.

    :raises ManifestInvalid: when the institution is elsewhere, has no key yet, or nobody can be asked.
    """
    kubectl = Kubectl.of(args)
    silo = asking.own_silo(kubectl, args.silo, "its key is replaced there")
    of = f"{silo['metadata']['namespace']}/{args.silo}"
    published = status_of(silo).get("publicKey")
    if published is None:
        raise ManifestInvalid(f"silo {of} has published no key yet; kubectl fedsilo silos says why")
    key = VerifyKey.from_text(published)
    if (silo["metadata"].get("annotations") or {}).get(ROTATE_KEY) == key.key_id:
        print(
            f"silo {of} is asked already to replace the key {key.key_id}; its condition Ready says how far it is"
        )
        return 0
    print(f"silo          {of}")
    print(f"fingerprint   {key.fingerprint}")
    if not args.yes and not agreed("Replace this key? Jobs that run end with it."):
        print("nothing was asked for")
        return 0
    asking.annotate(kubectl, silo, ROTATE_KEY, key.key_id)
    print(f"\nsilo {of} makes another key; its condition Ready says when that has taken over")
    return 0
