"""Times as Kubernetes writes them: RFC 3339 in UTC, whole seconds."""

from __future__ import annotations

from datetime import UTC, datetime


def timestamp(time: datetime) -> str:
    """A time as text, such as `2026-01-02T03:04:05Z`."""
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_timestamp(text: str) -> datetime:
    """The time that such a text, with or without a fraction of a second, means."""
    return datetime.fromisoformat(text)
