"""Replies that are no JSON, nested without end, lists, of 5 MB, with numbers of 16,000 digits, negative and huge
counts, metrics that are text, NaN, 1.7e308 or nobody's.

By: a hostile trainer, which writes into the drop.

Must: refused with the field that is wrong; nothing leaves.
"""

from __future__ import annotations

import json
from typing import Any

from attacks.live_guard import LiveGuard

RUNS_ONCE = True
TEXTS = (
    ("{", "not JSON"),
    ("[" * 100_000, "not JSON"),
    ('{"a":' * 100_000, "not JSON"),
    ("1" * 16_000, "not JSON"),
    ("[]", "not a JSON object"),
    (json.dumps({"samples": 10, "metrics": {}, "support": {}, "more": "x" * (5 << 20)}), "larger than"),
)
FIELDS: tuple[tuple[dict[str, Any], str], ...] = (
    ({"metrics": {"loss": 0.5, "patients": 41}}, "unexpected-metric"),
    ({"metrics": {"loss": float("nan")}}, "metrics"),
    ({"metrics": {"loss": 10**400}}, "metrics"),
    ({"metrics": {"loss": 1.7e308}}, "out-of-range"),
    ({"metrics": ["loss"]}, "metrics"),
    ({"metrics": {"loss": "Jane Doe"}}, "metrics"),
    ({"samples": -1}, "samples"),
    ({"samples": True}, "samples"),
    ({"samples": 10**30}, "samples"),
)


def attack(target: LiveGuard) -> None:
    for text, words in TEXTS:
        task = target.name()
        (target.aggregator.drop(task) / "reply.json").write_text(text)
        target.expect_drop_refused(task, words)
    for reply, words in FIELDS:
        task = target.name()
        target.aggregator.drop(task, **reply)
        target.expect_drop_refused(task, words)
