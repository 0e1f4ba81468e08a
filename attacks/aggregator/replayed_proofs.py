"""An honest proof that was overheard, sent again: as it was, and for another query, path, method, job, silo and body.

By: an attacker who has broken TLS and has no key.

Must: as it was, it gives the same answer as before and changes nothing; for anything else it is refused.
"""

from __future__ import annotations

from attacks.live_aggregator import LiveAggregator
from attacks.programs import NotRefusedError


def attack(target: LiveAggregator) -> None:
    silo, overheard = target.silo, target.silo.proof("GET", target.ask)
    first = silo.request("GET", target.ask, proof=overheard)
    again = silo.request("GET", target.ask, proof=overheard)
    if (first.status, first.body) != (again.status, again.body):
        raise NotRefusedError("a repeated request is answered differently")
    target.note("200 the same answer")
    update = f"{target.base}/updates/{target.task}"
    for method, path in (
        ("GET", target.ask + "0"),
        ("GET", f"{target.base}/blobs/{target.fetched_task.task.blobs[0].digest}"),
        ("HEAD", target.ask),
        ("HEAD", update),
        ("PATCH", update),
    ):
        target.expect("signature-invalid", silo.request(method, path, proof=overheard))
    report = f"{target.base}/failures/{target.task}"
    signed = silo.proof("POST", report, b'{"reason": "Slow", "message": ""}')
    changed = b'{"reason": "DataInvalid", "message": ""}'
    target.expect("signature-invalid", silo.request("POST", report, body=changed, proof=signed))
    target.expect("malformed", silo.request("POST", report, body=b"{}", proof=silo.proof("POST", report)))
