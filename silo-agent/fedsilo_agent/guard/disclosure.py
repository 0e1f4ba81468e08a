"""What a silo tells of a problem: few reports for each exchange, and of each as much text as may leave.

A report is an answer like an update. However a task is called, its exchange has a fixed number of them, which the audit
log counts across restarts; all tasks of exchanges that the job does not have share one such number. A text in which the
trainer may have a part counts as bytes of the silo's policy, and where these are used up, or the job protects single
values (`fedsilo.silo.withholding`), a fixed sentence takes its place. The whole text stays in the silo: in the guard's
own log and in its audit log.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedsilo.errors import FedsiloError, Problem
from fedsilo.silo.policy import EgressTotals, PolicyForbids
from fedsilo.silo.withholding import listed_reason, sentence
from fedsilo_agent.guard.audit import AuditLog
from fedsilo_agent.guard.client import AggregatorClient
from fedsilo_agent.guard.exchanges import AuditedTask, ExchangeRefused, FailureLog
from fedsilo_agent.guard.task_check import TaskCheck
from fedsilo_agent.guard.text import bounded_text

log = logging.getLogger("fedsilo.guard")

REPORTS_PER_EXCHANGE = 4
"""Failures that are reported of one exchange: of a first try and of those after an aggregator was resumed."""


@dataclass(frozen=True)
class DisclosedProblem:
    """What leaves of a problem.

    :param size: bytes that count for the policy: those of a text in which the trainer may have a part.
    """

    reason: str
    message: str
    size: int = 0


class DisclosureLog:
    """The problems of one silo's part in one job, on record and reported."""

    def __init__(self, check: TaskCheck, client: AggregatorClient, audit: AuditLog) -> None:
        self._check = check
        self._client = client
        self._audit = audit

    async def report(self, event: str, asked: AuditedTask, error: FedsiloError, **facts: Any) -> None:
        """Put on record why there is no update for a task, and tell the aggregator what may be told of it.

        :param event: of the audit log.
        :param facts: more for its line.
        """
        told = self._disclosed_problem(asked, error)
        line: Mapping[str, Any] = {"reason": error.reason, "detail": bounded_text(str(error)), **facts}
        # A refusal of the task itself answers nothing; what came of the trainer is this exchange's answer.
        if told is not None and not isinstance(error, PolicyForbids | ExchangeRefused):
            line = {**line, "taskDigest": asked.digest}
        if told is not None:
            line = {**line, "told": told.message, "toldBytes": told.size}
        self._audit.write(event, task=asked.task, round=asked.round, phase=asked.phase, **line)
        if told is None:
            log.warning("task %s: nothing more is reported of its exchange", asked.task)
            return
        try:
            await self._client.report_failure(asked.task, told.reason, told.message)
        except Problem as problem:
            log.warning("the failure of task %s was not taken: %s", asked.task, problem)

    def _disclosed_problem(self, asked: AuditedTask, error: FedsiloError) -> DisclosedProblem | None:
        """What leaves of an error; None where the exchange has had its reports."""
        if sum(failures.count for failures in self._of_exchange(asked)) >= REPORTS_PER_EXCHANGE:
            return None
        reason = listed_reason(error.reason)
        bare = DisclosedProblem(reason, sentence(reason))
        if self._check.withholds_texts:
            return bare
        message = bounded_text(error.redacted_text)
        if isinstance(error, PolicyForbids):
            return DisclosedProblem(reason, message)
        size = len(json.dumps({"reason": reason, "message": message}))
        return (
            DisclosedProblem(reason, message, size)
            if self._check.has_room(size, self._egress_totals(asked))
            else bare
        )

    def _egress_totals(self, asked: AuditedTask) -> EgressTotals:
        record = self._audit.record
        answer = record.answered.get(asked.key)
        here = sum(failures.size for failures in self._of_exchange(asked))
        return EgressTotals(size=record.size, in_exchange=here + (0 if answer is None else answer.size))

    def _of_exchange(self, asked: AuditedTask) -> list[FailureLog]:
        """What was reported of the task's exchange, or of all that the job does not have where it is one of these."""
        reported = self._audit.record.reported
        if self._check.has_exchange(asked.key):
            return [reported[asked.key]] if asked.key in reported else []
        return [failures for key, failures in reported.items() if not self._check.has_exchange(key)]
