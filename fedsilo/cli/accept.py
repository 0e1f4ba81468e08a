"""`fedsilo accept` admits the key that an institution has registered, once two people have compared its fingerprint."""

from __future__ import annotations

import argparse

from fedsilo.api.observed import Object, reference, status_of
from fedsilo.cli.cluster import enrolment
from fedsilo.cli.cluster.kubectl import Kubectl
from fedsilo.cli.cluster.text import plain_line
from fedsilo.cli.confirmation import agreed
from fedsilo.errors import ManifestInvalid, PolicyRefused, Problem
from fedsilo.silo.enrolment import left_at, registered_keys
from fedsilo.wire import VerifyKey


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the silo's name, its cluster and `--yes` to the arguments of `fedsilo accept`."""
    enrolment.add_arguments(parser)
    enrolment.add_question(parser)


def run(args: argparse.Namespace) -> int:
    """Show the fingerprint of the key in force, and write that key into `spec.remote.publicKey`.

    :raises ManifestInvalid: when nothing was registered with the present invitation, or nobody can be asked.
    :raises PolicyRefused: when the silo is revoked or has left.
    """
    kubectl = Kubectl.of(args)
    silo = enrolment.remote_silo(kubectl, args.silo)
    remote, of = silo["spec"]["remote"], reference(silo)
    if remote.get("revoked"):
        raise PolicyRefused(f"silo {of} is revoked; kubectl fedsilo invite {args.silo} invites it again")
    keys = _keys(silo)
    if (since := left_at(silo)) is not None:
        again = f"kubectl fedsilo invite {args.silo} invites it again"
        raise PolicyRefused(f"silo {of} has left the consortium at {plain_line(since)}; {again}")
    # The fingerprint of what will be written, whatever the status says it is.
    key = VerifyKey.from_text(keys[-1])
    print(f"silo          {of}")
    print(f"fingerprint   {key.fingerprint}")
    if len(keys) > 1:
        first = VerifyKey.from_text(keys[0]).fingerprint
        print(f"announced     under earlier keys, of which the first was {first}")
    found = status_of(silo)["enrolment"]
    print(f"registered    {plain_line(found['time'])}, by version {plain_line(found['version'])}")
    if remote.get("publicKey") in keys:
        print(f"\nsilo {of} is accepted already")
        return 0
    if not args.yes and not agreed("Does the institution read out the same fingerprint?"):
        print("nothing was accepted")
        return 0
    enrolment.patch(kubectl, silo, {"publicKey": key.to_text()})
    print(f"\nsilo {of} is accepted")
    return 0


def _keys(silo: Object) -> tuple[str, ...]:
    """The registered key and its successors, the one in force last.

    :raises ManifestInvalid: when there is none.
    """
    of, name, found = reference(silo), silo["metadata"]["name"], status_of(silo).get("enrolment")
    if found is None:
        raise ManifestInvalid(
            f"silo {of} has registered no key; wait until the institution has used its invitation"
        )
    try:
        keys = registered_keys(silo)
    except Problem as problem:
        raise ManifestInvalid(
            f"silo {of}: status.rotations does not lead from the registered key to another ({problem.detail}); find "
            f"out who wrote it, and kubectl fedsilo invite {name} lets the institution register anew"
        ) from problem
    if not keys:
        fingerprint = VerifyKey.from_text(found["publicKey"]).fingerprint
        raise ManifestInvalid(
            f"silo {of} has registered no key with its present invitation; the one with the fingerprint {fingerprint} "
            f"is of an earlier invitation, and does not count; give the institution the newest invitation, or make "
            f"another with kubectl fedsilo invite {name}, and wait until it has used that"
        )
    return keys
