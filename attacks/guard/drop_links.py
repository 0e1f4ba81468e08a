"""Drops whose tensors, reply, failure or whole directory are links: to files of the system, to the guard's key, to
nothing.

By: a hostile trainer, which writes into the drop.

Must: refused as no plain file; what is behind the link is not opened.
"""

from __future__ import annotations

from pathlib import Path

from attacks.live_guard import LiveGuard

RUNS_ONCE = True


def attack(target: LiveGuard) -> None:
    key = target.aggregator.volume.guard / "key.pem"
    for file in ("tensors", "reply.json"):
        for place in (Path("/etc/passwd"), key, Path("/nowhere"), Path("/proc/self/environ")):
            task = target.name()
            path = target.aggregator.drop(task) / file
            path.unlink()
            path.symlink_to(place)
            target.expect_drop_refused(task, "not a plain file")
    task = target.name()
    drop = target.aggregator.drop(task)
    drop.rename(drop.with_name(f"{task}-elsewhere"))
    drop.symlink_to(f"{task}-elsewhere")
    target.expect_drop_refused(task, "not a plain file")
    task = target.name()
    drop = target.aggregator.drop(task)
    (drop / "reply.json").rename(drop / "kept")
    (drop / "failed.json").symlink_to("kept")
    target.expect_drop_refused(task, "not a plain file")
