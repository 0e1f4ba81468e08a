"""Inputs that once found a defect, kept so that none comes back."""

from __future__ import annotations

import hashlib
from pathlib import Path

from tests.fuzz.targets import Target

FOLDER = Path(__file__).with_name("corpus")


def saved_inputs(target: Target) -> list[Path]:
    """The files of a target."""
    return sorted(_folder(target).glob("*.bin"))


def save(target: Target, data: bytes) -> Path:
    """Keep an input that found a defect; its file, named by the digest."""
    path = _folder(target) / f"{hashlib.sha256(data).hexdigest()[:12]}.bin"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def _folder(target: Target) -> Path:
    return FOLDER / target.name.replace(" ", "-").replace("'", "")
