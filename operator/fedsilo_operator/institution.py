"""Whether a Silo is that of an institution outside of the cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedsilo.api.observed import Object


def remote_of(silo: Object | None) -> Mapping[str, Any] | None:
    """`spec.remote` of a Silo, which only an institution outside of the cluster has."""
    remote: Mapping[str, Any] | None = ((silo or {}).get("spec") or {}).get("remote")
    return remote
