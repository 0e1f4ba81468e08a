"""`fedsilo accept`: admit the key that an institution has registered, once two people have compared its fingerprint."""

from __future__ import annotations

import argparse

from fedsilo.api.observed import status_of
from fedsilo.cli.cluster import enrolment
from fedsilo.cli.cluster.kubectl import Kubectl
from fedsilo.cli.cluster.text import plain
from fedsilo.cli.confirmation import agreed
from fedsilo.errors import ManifestInvalid, PolicyRefused
from fedsilo.wire import VerifyKey


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The silo."""
    enrolment.add_arguments(parser)
    enrolment.add_question(parser)


def run(args: argparse.Namespace) -> int:
    """Show the fingerprint, and write the key into `spec.remote.publicKey`.

    :raises ManifestInvalid: when nothing was registered, or nobody can be asked.
    :raises PolicyRefused: when the silo is revoked.
    """
    kubectl = Kubectl.of(args)
    silo = enrolment.remote_silo(kubectl, args.silo)
    remote, found = silo["spec"]["remote"], status_of(silo).get("enrolment")
    of = f"{silo['metadata']['namespace']}/{args.silo}"
    if remote.get("revoked"):
        raise PolicyRefused(f"silo {of} is revoked; kubectl fedsilo invite {args.silo} invites it again")
    if found is None:
        raise ManifestInvalid(
            f"silo {of} has registered no key; wait until the institution has used its invitation"
        )
    # The fingerprint of what will be written, whatever the status says it is.
    key = VerifyKey.from_text(found["publicKey"])
    print(f"silo          {of}")
    print(f"fingerprint   {key.fingerprint}")
    print(f"registered    {plain(found['time'])}, by version {plain(found['version'])}")
    if remote.get("publicKey") == key.to_text():
        print(f"\nsilo {of} is accepted already")
        return 0
    if not args.yes and not agreed("Does the institution read out the same fingerprint?"):
        print("nothing was accepted")
        return 0
    enrolment.patch(kubectl, silo, {"publicKey": key.to_text()})
    print(f"\nsilo {of} is accepted")
    return 0
