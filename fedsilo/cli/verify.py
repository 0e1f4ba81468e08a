"""`fedsilo verify` checks offline, with public keys alone, what a model was made from."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

from fedsilo.api.allowed_imports import looking_at
from fedsilo.api.text import count_text
from fedsilo.cli.allow_import import add_allow_import
from fedsilo.errors import ManifestInvalid, Problem
from fedsilo.verification.chain import VerifiedChain, verify
from fedsilo.verification.job import JOB, VerifiedJob
from fedsilo.verification.place import find
from fedsilo.wire import VerifyKey


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The directory, and the keys that are known from elsewhere."""
    parser.add_argument(
        "directory",
        type=Path,
        metavar="DIR",
        help="of a run, of its aggregator, or made by kubectl fedsilo model --with-provenance",
    )
    parser.add_argument(
        "--replay", action="store_true", help="also fold the kept updates again and compare every byte"
    )
    parser.add_argument(
        "--data",
        type=Path,
        metavar="DIR",
        help="with --replay: where the files of the job's public dataset lie; no other files are read for it",
    )
    add_allow_import(parser)
    parser.add_argument(
        "--key",
        action="append",
        default=[],
        metavar="NAME=KEY",
        help=f"a key that you have from its owner: {JOB}=ed25519:... or namespace/name=ed25519:... of a silo",
    )


def run(args: argparse.Namespace) -> int:
    """Print what holds, and whose word it rests on.

    :raises ManifestInvalid: when there is nothing to verify, or an argument is wrong.
    :raises ProvenanceInvalid: naming the first thing that is wrong.
    """
    if args.data is not None and not args.replay:
        raise ManifestInvalid("--data: is for --replay; add that, or leave this out")
    pins = _pins(args.key)
    place = find(args.directory)
    with looking_at(place.provenance):
        chain = verify(place, pins)
        if args.replay:
            from fedsilo.verification.replay import replay

            replay(place, chain, args.data)
    print("\n".join([*_findings(chain, args.replay), *_trust(chain.job)]))
    return 0


def _pins(given: Sequence[str]) -> dict[str, VerifyKey]:
    pins: dict[str, VerifyKey] = {}
    for text in given:
        name, equals, key = text.partition("=")
        if not equals or name in pins:
            problem = "names a key twice" if name in pins else "is not NAME=KEY"
            raise ManifestInvalid(
                f"--key {text}: {problem}; write {JOB}=ed25519:... or namespace/name=ed25519:..."
            )
        try:
            pins[name] = VerifyKey.from_text(key)
        except Problem as problem:
            raise ManifestInvalid(f"--key {name}: {problem.detail}") from problem
    return pins


def _findings(chain: VerifiedChain, replayed: bool) -> list[str]:
    job = chain.job
    lines = [
        f"job {job.name} ({job.uid}), specification {job.spec_digest}",
        f"{count_text(len(chain.exchanges), 'exchange')}: {count_text(chain.tasks, 'task')} signed by the job, "
        f"{count_text(chain.updates, 'update')} signed by {count_text(len(job.silos), 'silo')}",
        f"model {chain.model}, sealed by the job",
    ]
    if replayed:
        lines.append(
            "replayed: the kept updates fold to every state of the chain and to this model, byte for byte"
        )
    elif chain.kept is None:
        lines.append("not replayed: no updates are kept here, so that the folds rest on the job's word")
    else:
        lines.append(
            f"not replayed: {count_text(chain.kept, 'update')} kept here as accepted; --replay folds them again"
        )
    return lines


def _trust(job: VerifiedJob) -> list[str]:
    keys = job.keys()
    pinned = {name: key for name, key in keys.items() if name in job.pinned}
    claimed = {name: key for name, key in keys.items() if name not in job.pinned}
    lines = _key_lines("keys pinned with --key", pinned)
    return lines + _key_lines(
        "keys that this directory alone claims: compare them with their owners", claimed
    )


def _key_lines(title: str, keys: Mapping[str, VerifyKey]) -> list[str]:
    return [f"{title}:", *(f"  {name} {key.to_text()}" for name, key in keys.items())] if keys else []
