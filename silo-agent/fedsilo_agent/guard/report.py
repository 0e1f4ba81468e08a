"""What the guard says to whoever runs its pod: what has left, from its own audit log, and what is spent of a budget.

It has no access to an API server. It keeps the sums in its container's termination message, which the kubelet reads
when the container ends, in whatever way, and reports in the pod's status.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from fedsilo.process import TERMINATION_LOG, leave
from fedsilo.silo.receipts import Receipts, receipts_document

RECEIPTS, LEDGER = "receipts", "ledger"
"""Entries of the termination message."""


class ReceiptsReport:
    """The receipts of one silo's part in one job, kept up to date.

    :param termination_log: where there is no such file, nothing is written.
    :ivar facts: for the message of an error, which takes the place of this one.
    """

    def __init__(self, termination_log: Path = TERMINATION_LOG) -> None:
        self.facts: dict[str, Any] = {}
        self._path = termination_log
        self._receipts = Receipts("")

    def take(self, line: Mapping[str, Any], digest: str) -> None:
        """Take a line of the log and its digest."""
        # A line of another version counts as one; it does not keep the guard from its work.
        with suppress(KeyError, TypeError, ValueError, AttributeError, OverflowError):
            self._receipts.take(line, digest)

    @property
    def is_read(self) -> bool:
        """Whether anybody reads what is said here."""
        return self._path.exists()

    def take_ledger(self, ledger: Mapping[str, Any]) -> None:
        """Publish what is spent of the dataset's privacy budget, beside the receipts."""
        self.facts[LEDGER] = dict(ledger)
        self.publish()

    def publish(self) -> None:
        """Say what has left so far."""
        if not self.is_read:
            return
        self.facts[RECEIPTS] = receipts_document(self._receipts)
        leave(json.dumps(self.facts).encode(), self._path)
