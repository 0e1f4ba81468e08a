"""The digest that binds every signed message to what the job was."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from fedsilo.api.job import FederatedJob, FederatedJobSpec
from fedsilo.canonical import canonical_form, canonical_json

# The two fields that may change while the job runs.
_MUTABLE_FIELDS = {"suspend", "ttl_seconds_after_finished"}


def spec_digest(job: FederatedJob | FederatedJobSpec) -> str:
    """SHA-256, in hexadecimal, of the spec as canonical JSON with every default filled in and nulls left out.

    A later version may add a field that is null by default: that makes it no other job.
    """
    return canonical_digest(frozen_spec(job))


def frozen_spec(job: FederatedJob | FederatedJobSpec) -> dict[str, Any]:
    """What may not change while the job runs, in the form of which `spec_digest` is the digest."""
    spec = job.spec if isinstance(job, FederatedJob) else job
    fields = spec.model_dump(mode="json", by_alias=True, exclude=_MUTABLE_FIELDS, exclude_none=True)
    frozen: dict[str, Any] = canonical_form(fields)
    return frozen


def canonical_digest(fields: Mapping[str, Any]) -> str:
    """SHA-256, in hexadecimal, of an object as canonical JSON."""
    return hashlib.sha256(canonical_json(fields)).hexdigest()
