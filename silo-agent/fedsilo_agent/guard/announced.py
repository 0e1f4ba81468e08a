"""What the trainer announces before round 1, what is told of it, and the contracts that follow from it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedsilo.errors import FileDamaged, PolicyRefused, Problem
from fedsilo.files.json_files import holds_digest
from fedsilo.silo.announcement import Schema, announced_schema
from fedsilo.silo.trainer_files import as_object, read_content
from fedsilo.wire import Contract, ModelSignature, Task
from fedsilo_agent.guard.audit import AuditLog
from fedsilo_agent.guard.client import AggregatorClient
from fedsilo_agent.guard.drops import DamageTimeout, DropDirectory
from fedsilo_agent.guard.schema_handshake import SchemaHandshake
from fedsilo_agent.guard.task_check import TaskCheck


@dataclass(frozen=True)
class Announcement:
    """What a trainer says before round 1, as plain values that nobody has checked.

    :param signature: of the model; None where the data are not named as in the job, and nothing will be trained.
    :param schema: of the data; None of a trainer that announces none.
    :param findings: what a check of the data says; None of a trainer that announces none.
    """

    signature: Any
    isolation: str
    schema: Any
    findings: Any = None


class TrainerAnnouncement:
    """The announcement of one silo's trainer, to which it is held."""

    def __init__(
        self, check: TaskCheck, drops: DropDirectory, client: AggregatorClient, audit: AuditLog
    ) -> None:
        self._check, self._drops, self._audit = check, drops, audit
        self._agreement = SchemaHandshake(check, client, audit)

    async def contract(self, task: Task) -> Contract:
        """What may leave in answer to a task, once the aggregator agrees to what was announced.

        :raises PolicyRefused: when trainer or task are not what they should be.
        :raises ManifestInvalid: when the job asks for what does not go together; nothing is said.
        :raises TrainerFailed: when it cannot train.
        :raises Problem: when the aggregator does not agree.
        """
        self._check.require_consistent()
        announcement, schema = await self._data()
        try:
            signature = ModelSignature.from_dict(announcement.signature)
        except Problem as problem:
            raise PolicyRefused(f"signature.json: {problem}") from problem
        self._require_as_before(signature, announcement, schema)
        contract = self._check.contract(task, signature, schema)
        await self._agreement.wait(schema, announcement.findings)
        return contract

    def facts(self, problem: Problem) -> dict[str, str]:
        """What the audit line of a refusal says of the announcement."""
        return self._agreement.facts(problem)

    async def _data(self) -> tuple[Announcement, Schema | None]:
        """What the trainer announces, and the schema in it; that its data cannot be used is told beforehand."""
        waiting = self._drops.waiting()
        while True:
            announcement = await self.announcement()
            schema = announced_schema(announcement.schema)
            if announcement.signature is not None or (schema is None and announcement.findings is None):
                return announcement, schema
            # The aggregator names this silo's faults beside those of the others.
            await self._agreement.wait(schema, announcement.findings)
            self._drops.raise_failure()
            await waiting.change()  # a trainer that was started again reads the data anew

    async def announcement(self) -> Announcement:
        """What the trainer says, once it does; what is damaged is replaced when a trainer starts."""
        path, repair = self._drops.directory / "signature.json", DamageTimeout()
        waiting = self._drops.waiting()
        while True:
            try:
                if path.exists():
                    return read_announcement(path)
            except FileDamaged as damage:
                repair.check(damage)
            self._drops.raise_failure()
            await waiting.change()

    def _require_as_before(
        self, signature: ModelSignature, announcement: Announcement, schema: Schema | None
    ) -> None:
        """Hold the trainer to the model and the names of the data that it announced first, which are recorded.

        Names may change until something has left.

        :raises PolicyRefused: when it is another model, or data of other names.
        """
        record, digest = self._audit.record, _digest(signature)
        named = {} if schema is None else {"schema": schema.digest()}
        renamed = record.schema not in (None, named.get("schema"))
        if digest == record.signature and renamed and record.answered:
            raise PolicyRefused(
                "signature.json: the trainer's data are not named as they were before round 1"
            )
        if record.signature is None or (digest == record.signature and renamed):
            tensors, isolation = len(signature.tensors), announcement.isolation[:200]
            self._audit.write("signature", tensors=tensors, digest=digest, isolation=isolation, **named)
        elif digest != record.signature:
            raise PolicyRefused(
                "signature.json: the trainer's model is not the one that it had before round 1"
            )


def read_announcement(path: Path) -> Announcement:
    """The content of `signature.json`.

    :raises FileDamaged: when it has a digest and is not what the trainer wrote.
    """
    content = read_content(path)
    if b'"sha256": ' in content and not holds_digest(content):
        raise FileDamaged(f"{path}: damaged, it is not what the trainer wrote; start the trainer again")
    document = as_object(path, content)
    signature, schema, findings = (document.get(name) for name in ("signature", "schema", "findings"))
    return Announcement(signature, str(document.get("isolation", "")), schema, findings)


def _digest(signature: ModelSignature) -> str:
    return hashlib.sha256(json.dumps(signature.to_dict(), sort_keys=True).encode()).hexdigest()
