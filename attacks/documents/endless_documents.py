"""Documents that are more work than any: JSON and YAML that is nested without end or doubles itself by aliases, a
million empty lists, numbers of 100,000 digits, headers of tensors that are too large, lines without end.

By: somebody whose model, manifest or provenance a person opens.

Must: refused with one line, before it takes the memory that it stands for.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from attacks.handed_over import LOAD_MODEL, MODEL, HandedOver

RUNS_ONCE = True

VALUES = ("[" * 100_000, "9" * 100_000, f"[{'[],' * 10**6}[]]", '{"a":' * 100_000)
BOMB = "a: &a [1, 1, 1, 1, 1, 1, 1, 1, 1]\n" + "".join(
    f"{name}: &{name} [{', '.join(['*' + before] * 9)}]\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
MANIFESTS = ("[" * 100_000, BOMB, f"a: [{'1,' * 10**6}1]", f"a: {'9' * 100_000}", "a: \0")


def _prefixed_bytes(text: bytes) -> bytes:
    return len(text).to_bytes(8, "little") + text


def attack(target: HandedOver) -> None:
    for value in VALUES:
        at = target.copy()
        description = at / "model.json"
        description.write_text(f'{{"note": {value}, {description.read_text()[1:]}')
        for command in ((LOAD_MODEL, MODEL), ("verify", ".")):
            target.expect_refused("model.json", *command, at=at, codes=(2, 9))
    for content in (
        (1 << 63).to_bytes(8, "little") + b"{}",
        _prefixed_bytes(b"[" * 100_000),
        _prefixed_bytes(b'{"a":' * 100_000),
    ):
        at = target.copy()
        _replace(at / MODEL, content, target)
        target.expect_refused(MODEL, LOAD_MODEL, MODEL, at=at, codes=(8,))
    for text in MANIFESTS:
        at = target.copy()
        (at / "job.yaml").write_text(text)
        target.expect_refused("job.yaml", "validate", "-f", "job.yaml", at=at)
    at = target.copy()
    provenance = at / "provenance.json"
    provenance.write_bytes(
        provenance.read_bytes().replace(b'"kind":"exchange"', b'"kind":"' + b"x" * (20 << 20) + b'"', 1)
    )
    target.expect_refused("has a line of more than", "verify", ".", at=at, codes=(9,))


def _replace(model: Path, content: bytes, target: HandedOver) -> None:
    """Other content of which `model.json` has the digest."""
    model.write_bytes(content)
    digest = hashlib.sha256(content).hexdigest()
    target.edit_json(model.with_suffix(".json"), lambda document: document.update(sha256=digest))
