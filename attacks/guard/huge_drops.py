"""Tensors and a reply of a hundred gigabytes, in files of holes, and 5 MB where the contract has some bytes.

By: a hostile trainer, which writes into the drop.

Must: refused as larger than the contract, after as many bytes as that has.
"""

from __future__ import annotations

import os

from attacks.live_guard import LiveGuard

RUNS_ONCE = True


def attack(target: LiveGuard) -> None:
    for file, size in (("tensors", 100 << 30), ("reply.json", 100 << 30), ("tensors", 5 << 20)):
        task = target.name()
        os.truncate(target.aggregator.drop(task) / file, size)
        target.expect_drop_refused(task, "larger than")
