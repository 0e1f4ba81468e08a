"""A provenance in which two silos answer under one key, or a silo under the job's, sealed anew, with no other fault.

By: an institution that would count twice, with the aggregator's help.

Must: refused with one line that names both.
"""

from __future__ import annotations

from attacks.handed_over import HandedOver
from tests.federate import TASK_KEY
from tests.unit.verification.chains import Lines, edit_and_link

RUNS_ONCE = True


def attack(target: HandedOver) -> None:
    def one_key(lines: Lines) -> None:
        first, second = lines[0]["silos"]
        second["key"] = first["key"]

    def the_jobs_key(lines: Lines) -> None:
        lines[0]["silos"][0]["key"] = TASK_KEY.verify_key.to_text()

    for change in (one_key, the_jobs_key):
        at = target.copy()
        edit_and_link(at, change, TASK_KEY)
        target.expect_refused("have one key", "verify", ".", at=at, codes=(9,))
