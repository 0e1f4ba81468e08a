"""The digest that binds every signed message to what the job was."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from fedsilo.api.job import FederatedJob, FederatedJobSpec

# The two fields that may change while the job runs.
_MUTABLE = {"suspend", "ttl_seconds_after_finished"}


def spec_digest(job: FederatedJob | FederatedJobSpec) -> str:
    """SHA-256, in hexadecimal, of the spec as canonical JSON with every default filled in and nulls left out.

    An API server may drop a null, and a later version may add a field that is null by default: neither makes it
    another job. Keys are sorted, nothing is between tokens, text is UTF-8, and a whole number has no fraction
    (RFC 8785, section 3.2.2.3): an API server gives `mu: 1.0` back as `1`, and the digest must not notice.
    """
    return canonical_digest(frozen_spec(job))


def frozen_spec(job: FederatedJob | FederatedJobSpec) -> dict[str, Any]:
    """What may not change while the job runs, in the form of which `spec_digest` is the digest."""
    spec = job.spec if isinstance(job, FederatedJob) else job
    fields = spec.model_dump(mode="json", by_alias=True, exclude=_MUTABLE, exclude_none=True)
    frozen: dict[str, Any] = _canonical(fields)
    return frozen


def canonical_digest(fields: Mapping[str, Any]) -> str:
    """SHA-256, in hexadecimal, of an object as canonical JSON, see `spec_digest`."""
    text = json.dumps(
        _canonical(fields), sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
    return hashlib.sha256(text.encode()).hexdigest()


def _canonical(value: Any) -> Any:
    match value:
        case Mapping():
            return {key: _canonical(item) for key, item in value.items() if item is not None}
        case list():
            return [_canonical(item) for item in value]
        case float() if value.is_integer():
            return int(value)
        case _:
            return value
