"""A signature of the model that changes after round 1: more tensors, other shapes, no JSON, a link.

By: a hostile trainer, which writes into the drop.

Must: refused as `PolicyRefused`; with the first signature in its place again, the guard goes on.
"""

from __future__ import annotations

import json

from attacks.live_guard import LiveGuard

RUNS_ONCE = True


def attack(target: LiveGuard) -> None:
    path = target.aggregator.volume.drop / "signature.json"
    honest = path.read_text()
    wider = json.loads(honest)
    wider["signature"]["tensors"].append(["patients", [1000, 1000], "float32"])
    try:
        for text, words in (("{", "not JSON"), ("[]", "not a JSON object"), ("{}", "signature.json")):
            path.write_text(text)
            target.expect_drop_refused(drop_honest_reply(target), words)
        path.write_text(json.dumps(wider))
        target.expect_drop_refused(drop_honest_reply(target), "signature.json")
        path.unlink()
        path.symlink_to("/etc/passwd")
        target.expect_drop_refused(drop_honest_reply(target), "not a plain file")
    finally:
        path.unlink()
        path.write_text(honest)


def drop_honest_reply(target: LiveGuard) -> str:
    """A new task with an honest answer."""
    name = target.name()
    target.aggregator.drop(name)
    return name
