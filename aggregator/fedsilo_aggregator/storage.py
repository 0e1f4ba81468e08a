"""What silos are told when the aggregator's disk takes nothing: to send it again later."""

from __future__ import annotations

import logging

from fedsilo.errors import Problem, StorageFailed
from fedsilo.files.durable import is_disk_full

log = logging.getLogger("fedsilo.aggregator")


def storage_problem(error: OSError, consequence: str) -> Problem | None:
    """The refusal, which silos do not take as final, for an error of the disk; None for any other error.

    :param consequence: what became of what was sent.
    """
    failure = StorageFailed.of(error)
    if failure is None:
        return None
    if is_disk_full(error):
        return Problem("storage-full", f"the aggregator's disk is full; {consequence}, send it again later")
    log.error("%s: %s", failure.reason, failure)
    return Problem("storage-full", f"the aggregator's disk failed; {consequence}, send it again later")
