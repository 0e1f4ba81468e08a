"""What a trainer announces before round 1, as far as the guard checks it: names and types, none of the data."""

from __future__ import annotations

from fedsilo.api.data import DataSpec
from fedsilo.data.comparison import compare, mismatch_text
from fedsilo.data.schema import MAX_SCHEMA_BYTES, Schema
from fedsilo.errors import DataInvalid, PolicyRefused

__all__ = ["MAX_SCHEMA_BYTES", "Schema", "announced_schema", "require_declared"]


def announced_schema(value: object) -> Schema | None:
    """The schema as the trainer has written it; None where it announces none.

    :raises PolicyRefused: for anything but a schema.
    """
    try:
        return None if value is None else Schema.from_dict(value)
    except DataInvalid as error:
        raise PolicyRefused(f"signature.json: {error}") from error


def require_declared(data: DataSpec, schema: Schema | None) -> None:
    """Check that the trainer's labels are those of the job, where the job names its classes.

    :raises PolicyRefused: naming the difference.
    """
    if data.class_names is None or (schema is not None and schema.classes == data.class_names):
        return
    faults = mismatch_text(compare(data, {"the trainer": schema or Schema()}))
    raise PolicyRefused(faults or "the trainer announced other classes than the job's; nothing is sent")
