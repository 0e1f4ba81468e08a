"""What a silo sends for the check before round 1: its findings, and the schema of its data."""

from __future__ import annotations

import json
from typing import Any, Final

from fedsilo.api.data import DataSpec
from fedsilo.canonical import canonical_json
from fedsilo.data.schema import MAX_SCHEMA_BYTES, Schema
from fedsilo.errors import DataInvalid
from fedsilo.readiness.announced import AnnouncedFinding, announced_findings

MAX_READINESS_BYTES: Final = MAX_SCHEMA_BYTES + (64 << 10)
"""Largest statement in canonical JSON."""


def readiness_body(schema: Schema | None, findings: tuple[AnnouncedFinding, ...]) -> bytes:
    """The statement in canonical JSON.

    :param schema: None of data that cannot be read.
    """
    named: dict[str, Any] = {} if schema is None else {"schema": schema.to_dict()}
    return canonical_json({"findings": [finding.to_dict() for finding in findings]} | named)


def readiness_of(content: bytes, data: DataSpec) -> tuple[Schema | None, tuple[AnnouncedFinding, ...]]:
    """Read what `readiness_body` wrote, and nothing else.

    :raises DataInvalid: naming the field.
    """
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        raise DataInvalid("readiness: is no JSON; send one object") from None
    if not isinstance(value, dict) or not {"findings"} <= value.keys() <= {"findings", "schema"}:
        raise DataInvalid("readiness: is not an object with findings and perhaps a schema; send that")
    schema = None if "schema" not in value else Schema.from_dict(value["schema"])
    return schema, announced_findings(value["findings"], data)
