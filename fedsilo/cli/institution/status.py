"""`fedsilo silo status` shows a silo's jobs, what waits for a person, what left, and whether the hub is reached."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from fedsilo.api.observed import Object
from fedsilo.api.text import count_text
from fedsilo.cli.cluster.text import plain_line
from fedsilo.cli.cluster.time_format import age, duration
from fedsilo.cli.columns import columns
from fedsilo.cli.institution.place import add_directory, directory_of
from fedsilo.institution.overview import overview


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The silo's directory, and the form of the answer."""
    add_directory(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of text")


def run(args: argparse.Namespace) -> int:
    """Print the silo's state, and return 0 whether the silo serves or not.

    :raises ManifestInvalid: when the directory is no silo's.
    """
    found = overview(directory_of(args))
    print(json.dumps(found) if args.json else "\n".join(_text(found, datetime.now().astimezone())))
    return 0


def _text(found: Mapping[str, Any], now: datetime) -> Iterator[str]:
    yield f"silo {found['silo']} of the hub at {found['hub']['url']}; key {found['fingerprint']}"
    serving, contact = found["serving"], found["hub"].get("contact")
    if found["hasLeft"]:
        yield (
            "it has left the hub: to take part again, ask its office for an invitation, and run fedsilo silo join "
            f"INVITATION --dir {found['directory']}"
        )
    elif serving is None:
        yield (
            "nobody serves it, so nothing runs and the hub is not asked: run fedsilo silo serve --dir "
            f"{found['directory']}"
        )
        if contact is not None and not contact["reached"]:
            yield f"before that, {_hub(contact, past=True)}"
    else:
        yield f"process {serving['pid']} has served it for {duration(age(serving['since'], now))}"
        yield "the hub is about to be asked" if contact is None else _hub(contact)
    if found["fault"]:
        yield f"what silo.yaml said before still counts: {plain_line(found['fault'])}"
    yield ""
    if not found["jobs"]:
        yield "the hub has asked for no job"
        return
    yield columns([("job", "siloagent", "phase", "left", "age"), *(_row(job, now) for job in found["jobs"])])
    for job in found["jobs"]:
        if job["message"] and job["phase"] != "Running":
            yield f"\n{job['name']}: {plain_line(job['message'])}"


def _hub(contact: Mapping[str, Any], *, past: bool = False) -> str:
    """A sentence on whether the hub is reached, or, with `past`, was when the silo was served last."""
    be, message, heard = "was" if past else "is", plain_line(contact["message"]), contact["heard"]
    if contact["reached"]:
        return f"the hub {be} reached since {contact['since']}: {message}"
    if contact.get("refused"):
        does = "answered, but refused" if past else "answers, but refuses"
        return f"the hub {does} this silo's requests since {contact['since']}: {message}"
    last = f"; it answered last at {heard}" if heard else ""
    return f"the hub {be} not reached since {contact['since']}{last}: {message}"


def _row(job: Object, now: datetime) -> tuple[str, ...]:
    left = job["left"]
    sent = f"{count_text(left['updates'], 'update')}, {left['bytes']} bytes" if left else "nothing"
    phase = f"{job['phase']} (taken back)" if job["gone"] else job["phase"]
    return plain_line(job["job"]), job["name"], phase, sent, duration(age(job["since"], now))
