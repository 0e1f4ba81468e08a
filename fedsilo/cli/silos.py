"""`fedsilo silos` lists the institutions of a hub, what each offers, when it was heard of, and why it is not ready."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from fedsilo.api.observed import Object, condition, reference, status_of
from fedsilo.cli.cluster.federation import SILOS
from fedsilo.cli.cluster.kubectl import Kubectl, add_cluster_arguments
from fedsilo.cli.cluster.text import plain_line, sentence
from fedsilo.cli.cluster.time_format import age, duration
from fedsilo.cli.columns import columns
from fedsilo.cli.status import cut
from fedsilo.errors import Problem
from fedsilo.silo.enrolment import registered_keys
from fedsilo.silo.offer import read_offer
from fedsilo.wire import VerifyKey

HEADINGS = ("silo", "place", "ready", "last seen", "version", "fingerprint", "offers", "message")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that choose the namespaces whose silos are listed."""
    parser.add_argument("-A", "--all-namespaces", action="store_true", help="the silos of all namespaces")
    add_cluster_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Print one line for each institution."""
    everywhere = ["--all-namespaces"] if args.all_namespaces else []
    silos: Sequence[Object] = Kubectl.of(args).get(SILOS, *everywhere)["items"]
    text = table(silos, datetime.now().astimezone(), namespaces=args.all_namespaces)
    print(cut(text, shutil.get_terminal_size().columns) if sys.stdout.isatty() else text)
    return 0


def table(silos: Sequence[Object], now: datetime, *, namespaces: bool) -> str:
    """One line for each Silo."""
    if not silos:
        return "there are no silos" if namespaces else "there are no silos in this namespace"
    rows = sorted(
        _row(silo, now, reference(silo) if namespaces else silo["metadata"]["name"]) for silo in silos
    )
    return columns([HEADINGS, *rows])


def _row(silo: Object, now: datetime, name: str) -> tuple[str, ...]:
    status, ready = status_of(silo), condition(silo, "Ready") or {}
    remote, enrolment = silo["spec"].get("remote") is not None, status.get("enrolment") or {}
    seen, version = status.get("lastSeen"), enrolment.get("version")
    return (
        name,
        "outside" if remote else "cluster",
        {"True": "yes", "False": "no"}.get(ready.get("status", ""), "-"),
        "-" if seen is None else f"{duration(age(seen, now))} ago",
        "-" if version is None else plain_line(version).removeprefix("fedsilo "),
        _fingerprint(silo),
        _offered_datasets(silo),
        " ".join(_faults(status.get("conditions") or ())),
    )


def _fingerprint(silo: Object) -> str:
    """Fingerprint computed from the published key, or from the one that waits for a person.

    Whatever fingerprint stands beside the key is not read.
    """
    published = status_of(silo).get("publicKey")
    try:
        keys = registered_keys(silo) if published is None else (published,)
        return VerifyKey.from_text(keys[-1]).fingerprint if keys else "-"
    except Problem:
        return "unreadable"


def _offered_datasets(silo: Object) -> str:
    """Datasets that jobs may ask for, if the silo's key has signed that."""
    status = status_of(silo)
    offer, key = status.get("offer"), status.get("publicKey")
    if offer is None or key is None:
        return "-"
    try:
        datasets = read_offer(offer, reference(silo), key).datasets
    except Problem as problem:
        return f"not its own word ({problem.code})"
    return ", ".join(
        f"{one.name}{'' if one.classes is None else f' ({one.classes} classes)'}" for one in datasets
    )


def _faults(conditions: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for found in conditions:
        if found["status"] != "True":
            yield f"{plain_line(found['reason'])}: {sentence(found.get('message') or '')}".rstrip(": ")
