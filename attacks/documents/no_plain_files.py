"""Pipes, links out of the directory, devices and terabytes without content in the place of a model, its description, a
provenance, a kept update and a manifest.

By: somebody whose directory a person opens.

Must: refused with one line, at once; nothing outside of the directory is read.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from attacks.handed_over import LOAD_MODEL, MODEL, HandedOver

RUNS_ONCE = True

TERABYTE = 1 << 40
EVALUATE = ("evaluate", "--model", MODEL, "-f", "job.yaml")
COMMANDS: dict[str, tuple[tuple[str, ...], ...]] = {
    MODEL: ((LOAD_MODEL, MODEL), EVALUATE, ("verify", ".")),
    "model.json": ((LOAD_MODEL, MODEL), EVALUATE, ("verify", ".")),
    "provenance.json": (("verify", "."),),
    "kept/r00001-train/r00001-train-s0.update": (("verify", "."), ("verify", ".", "--replay")),
    "job.yaml": (("validate", "-f", "job.yaml"),),
}
"""What a directory holds -> the commands that open it."""


def attack(target: HandedOver) -> None:
    kinds: tuple[Callable[[Path], object], ...] = (
        os.mkfifo,
        lambda path: path.symlink_to(target.secret),
        lambda path: path.symlink_to("/dev/zero"),
        _terabyte,
    )
    for name, commands in COMMANDS.items():
        for put in kinds:
            at = target.copy()
            (at / name).unlink()
            put(at / name)
            for command in commands:
                target.expect_refused(Path(name).name, *command, at=at, codes=(2, 6, 8, 9))


def _terabyte(path: Path) -> None:
    path.touch()
    os.truncate(path, TERABYTE)
