"""Random numbers that only the silo can draw: from a secret of its own, kept beside its private state.

All else that is drawn in a job follows from its seed, which its manifest states. Noise that is to hide something must
not: whoever can draw it again takes it off. The secret comes from the operating system, once for each silo of a job. It
is on the disk before anything that was made with it can leave, and stays when private state is dropped: a task that
is done again after a crash gives the same bytes, and nobody gets the same figure twice under different noise.
"""

from __future__ import annotations

import hmac
import json
import secrets
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from fedsilo.errors import FileDamaged
from fedsilo.files.durable import publish, temporary_file
from fedsilo.files.full_disk import when_there_is_space
from fedsilo.files.json_files import content_with_digest, read_with_digest

SECRET_BYTES = 32
"""Bytes of a secret."""

REMEDY = (
    "restore it from a backup, or remove it: another is drawn then, and no answer that has left is sent again"
)


def draw() -> bytes:
    """A new secret of the operating system, `SECRET_BYTES` long."""
    return secrets.token_bytes(SECRET_BYTES)


@dataclass
class Secret:
    """One silo's secret in one job, drawn on first use.

    :param file: where it is kept; None keeps it in memory, as in a simulation, which is never resumed.
    """

    file: Path | None = None
    _drawn: bytes | None = field(default=None, init=False, repr=False, compare=False)

    def generator(self, *purpose: str | int) -> np.random.Generator:
        """Random numbers for a purpose, the same whenever this silo asks for them in this job.

        :raises FileDamaged: when the file does not hold what was written.
        """
        if self._drawn is None:
            self._drawn = draw() if self.file is None else _ensure_secret(self.file)
        digest = hmac.digest(self._drawn, json.dumps(purpose).encode(), "sha256")
        return np.random.default_rng(int.from_bytes(digest, "big"))


def _ensure_secret(file: Path) -> bytes:
    """The secret in the file, which is written where there is none; waits while the disk is full."""
    document = read_with_digest(file, REMEDY, {"secret": str})
    if document is None:
        drawn = draw()
        when_there_is_space(lambda: _write(file, drawn))
        return drawn
    try:
        return bytes.fromhex(document["secret"])
    except ValueError:
        raise FileDamaged(f"{file}: secret: is not hexadecimal; {REMEDY}") from None


def _write(file: Path, secret: bytes) -> None:
    """Write it durably, for nobody else of the machine to read."""
    with temporary_file(file.parent, 0o600) as (opened, temporary):
        opened.write(content_with_digest({"secret": secret.hex()}))
        publish(opened, temporary, file)
