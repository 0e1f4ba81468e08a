"""Requests to the API server, counted under the names of client-go's own metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from fedsilo.metrics import Distribution, Sample, Series

NO_ANSWER = "none"
"""In place of a status code, where the connection broke or the time ran out."""

REQUESTS = Series(
    "rest_client_requests_total",
    "counter",
    ("method", "code"),
    "Requests to the API server by HTTP method and status; none where no answer came.",
)
DURATION = Series(
    "rest_client_request_duration_seconds",
    "histogram",
    ("method",),
    "Time until the API server's answer begins.",
    (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 15.0, 30.0),
)

DECLARED_SERIES = (REQUESTS, DURATION)


class RequestTotals:
    """How many requests a process has sent, what became of them, and how long their answers took."""

    def __init__(self) -> None:
        self._answers: Counter[tuple[str, str]] = Counter()
        self._durations: dict[str, Distribution] = {}

    def add(self, method: str, status: int | None, seconds: float) -> None:
        """Count one request to the API server.

        :param status: None when no answer came.
        """
        self._answers[method, NO_ANSWER if status is None else str(status)] += 1
        self._durations.setdefault(method, Distribution(DURATION.bounds)).add(seconds)

    def read(self) -> Iterator[Sample]:
        """The counts as they are now."""
        for (method, code), count in sorted(self._answers.items()):
            yield Sample(REQUESTS, (method, code), count)
        for method, durations in sorted(self._durations.items()):
            yield Sample(DURATION, (method,), durations)
