"""What the guard says of the silo's data before its trainer gets a task, and whether the aggregator lets it begin."""

from __future__ import annotations

import hashlib
import logging
from typing import Any

from fedsilo.errors import PolicyRefused, Problem
from fedsilo.silo.announcement import Schema, announced_readiness, readiness_body
from fedsilo.silo.policy import EgressTotals
from fedsilo_agent.guard.audit import AuditLog
from fedsilo_agent.guard.client import AggregatorClient
from fedsilo_agent.guard.task_check import TaskCheck

log = logging.getLogger("fedsilo.guard")

ANNOUNCEMENTS = 8
"""How often a silo describes its data otherwise than before, as after they were mended, in words of its trainer."""

JOB_FAILED = ("schema-mismatch", "not-ready")
"""Refusals that say that the job has failed, because of what the silos have said."""


class SchemaHandshake:
    """What this process has announced and the aggregator has agreed to; it is announced once."""

    def __init__(self, check: TaskCheck, client: AggregatorClient, audit: AuditLog) -> None:
        self._check = check
        self._client = client
        self._audit = audit
        self._said: bytes | None = None
        self._refused: str | None = None

    async def wait(self, schema: Schema | None, findings: Any) -> None:
        """Announce the schema, and what may be told of the findings where the job asks for them.

        :param findings: as the trainer has written them.
        :raises PolicyRefused: for what are no findings.
        :raises ManifestInvalid: when the institution's manifest of the dataset cannot be used.
        :raises Problem: `schema-mismatch` or `not-ready`.
        """
        data = self._check.agent.spec.job.spec.data
        schema = None if schema is None else self._check.told_schema(schema)
        if data.check is not None:
            told = self._check.finding_rules.permitted_findings(announced_readiness(findings, data))
            content = readiness_body(schema, told)
        elif schema is not None:
            content = schema.to_json()
        else:
            return
        if content == self._said:
            return
        try:
            if data.check is not None:
                self._record("readiness", content, findings=[finding.to_dict() for finding in told])
                await self._client.announce_readiness(content)
            else:
                self._record("schema", content)
                await self._client.announce_schema(content)
        except Problem as problem:
            if problem.code in JOB_FAILED and schema is not None:
                self._refused = schema.digest()
            if problem.code != "malformed" or data.class_names is not None or data.check is not None:
                raise
            log.warning("the aggregator compares no schemata: %s", problem)  # an earlier release
        self._said = content

    def facts(self, problem: Problem) -> dict[str, str]:
        """What the audit line of a refusal says of the schema that was refused."""
        if problem.code not in JOB_FAILED:
            return {}
        return {"detail": problem.detail} | ({} if self._refused is None else {"schema": self._refused})

    def _record(self, event: str, content: bytes, **facts: Any) -> None:
        """Put on record what is about to leave, unless it is what was told last.

        :raises PolicyRefused: when the data were described otherwise too often, or the policy has no room for it.
        """
        digest, record, size = hashlib.sha256(content).hexdigest(), self._audit.record, len(content)
        if record.announced == digest:
            return
        if record.announcements >= ANNOUNCEMENTS:
            raise PolicyRefused(
                f"signature.json: the trainer has described its data {record.announcements} times, each time "
                "otherwise; nothing more is told of them, begin the job anew"
            )
        self._check.require_room_for_names(size, EgressTotals(size=record.size))
        self._audit.write(event, digest=digest, bytes=size, **facts)
