"""Provenance files as one who would forge them edits them."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

from fedsilo.engine.provenance import ENDING, OPENING, sha256_of
from fedsilo.verification.chain import VerifiedChain, verify
from fedsilo.verification.place import find
from fedsilo.verification.replay import replay
from fedsilo.wire import ChainEnd, SigningKey, VerifyKey, seal_chain

Lines = list[dict[str, Any]]


def verify_directory(directory: Path, **pins: VerifyKey) -> VerifiedChain:
    return verify(find(directory), pins)


def replay_directory(directory: Path) -> None:
    place = find(directory)
    replay(place, verify(place, {}))


def lines_of(directory: Path) -> Lines:
    lines: Lines = json.loads((directory / "provenance.json").read_bytes())["chain"]
    return lines


def text_of(line: dict[str, Any]) -> str:
    return json.dumps(line, sort_keys=True, separators=(",", ":"))


def write(directory: Path, lines: Lines, seal: str | None = None) -> None:
    """Write lines as they are, under the old seal or another."""
    path = directory / "provenance.json"
    seal = seal or json.loads(path.read_bytes())["seal"]
    text = ",\n".join(map(text_of, lines))
    path.write_bytes(OPENING + text.encode() + ENDING + seal.encode() + b'"}\n')


def edit(directory: Path, change: Callable[[Lines], object]) -> None:
    """Change lines and nothing else."""
    lines = lines_of(directory)
    change(lines)
    write(directory, lines)


def edit_and_link(directory: Path, change: Callable[[Lines], object], key: SigningKey | None = None) -> None:
    """Change lines and make them a chain again, sealed anew by a key if one is given."""
    lines = lines_of(directory)
    change(lines)
    for before, after in pairwise(lines):
        after["previous"] = sha256_of(text_of(before))
    seal = None
    if key is not None:
        end = ChainEnd(lines[0]["uid"], len(lines), bytes.fromhex(sha256_of(text_of(lines[-1]))))
        seal = base64.b64encode(seal_chain(end, key)).decode()
    write(directory, lines, seal)


def flip_bit(text: str, place: int) -> str:
    """Base64 of the same bytes with one bit flipped."""
    data = bytearray(base64.b64decode(text))
    data[place] ^= 1
    return base64.b64encode(data).decode()
