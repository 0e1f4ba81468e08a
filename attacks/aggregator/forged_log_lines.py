"""Line breaks, escape sequences and lines of a log in paths, tasks, headers and failure reports.

By: a silo of the job with its own key.

Must: refused or taken; nothing of it becomes a line of the aggregator's log.
"""

from __future__ import annotations

import json

from attacks.live_aggregator import LiveAggregator
from attacks.programs import NotRefusedError

LINE = "2026-01-01 00:00:00,000 WARNING forged"


def attack(target: LiveAggregator) -> None:
    forged = "%0d%0a" + LINE.replace(" ", "%20")
    silo = target.silo
    target.expect("wrong-job", silo.request("GET", f"/v1/jobs/x{forged}", proof=""))
    target.expect("unknown-task", silo.head(f"x{forged}%1b%5b2J"))
    target.expect("malformed", silo.request("GET", target.ask, proof="Bearer \x1b[2J\x85"))
    report = json.dumps({"reason": f"Slow\n{LINE}", "message": ""}).encode()
    target.expect("malformed", silo.fail(target.task, report))
    if any(line.endswith("WARNING forged") for line in target.site.log().splitlines()):
        raise NotRefusedError("a forged line is in the log")
