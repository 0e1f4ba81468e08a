"""What an answer of an API server means to a controller; the answers are those of Kubernetes 1.36."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fedsilo.metrics import Distribution
from fedsilo_operator.cluster.connection import error_of
from fedsilo_operator.cluster.interface import (
    CallRefused,
    ClusterError,
    ClusterUnavailable,
    Conflict,
    FieldConflict,
    NotFound,
)
from fedsilo_operator.cluster.requests import RequestTotals

CONFLICT_BODY = {
    "message": 'Apply failed with 1 conflict: conflict with "kubectl-edit" using v1: .spec.ports',
    "details": {
        "causes": [
            {
                "reason": "FieldManagerConflict",
                "message": 'conflict with "kubectl-edit" using v1',
                "field": ".spec.ports",
            }
        ]
    },
}
OTHER_UID = {"message": "invalid", "details": {"causes": [{"field": "metadata.uid"}]}}
HOOK = {
    "message": 'Internal error occurred: failed calling webhook "x.example.org": connection refused',
    "details": {"causes": [{"message": "failed calling webhook"}]},
}


@pytest.mark.parametrize(
    ("status", "said", "meant"),
    [
        (409, CONFLICT_BODY, FieldConflict),
        (409, {"message": "the object has been modified"}, Conflict),
        (409, {"message": 'configmaps "a" already exists', "details": {"name": "a"}}, Conflict),
        (422, OTHER_UID, Conflict),
        (422, {"message": "Service is invalid"}, CallRefused),
        (403, {"message": "exceeded quota"}, CallRefused),
        (404, {"message": "not found"}, NotFound),
        (500, HOOK, CallRefused),
        (500, {"message": "etcdserver: request timed out"}, ClusterUnavailable),
        (429, {"message": "too many requests"}, ClusterUnavailable),
    ],
)
def test_errors_are_sorted_by_what_to_do_about_them(
    status: int, said: dict[str, Any], meant: type[ClusterError]
) -> None:
    error = error_of("PATCH /x", status, json.dumps(said).encode())
    assert type(error) is meant
    assert str(error) == said["message"]


def test_what_is_no_answer_of_an_api_server_is_quoted() -> None:
    error = error_of("GET https://lab/x", 502, b"<html>bad gateway</html>")
    assert isinstance(error, ClusterUnavailable)
    assert str(error) == "GET https://lab/x: HTTP 502: <html>bad gateway</html>"


def test_requests_are_counted_by_answer_and_those_without_one_too() -> None:
    counts = RequestTotals()
    counts.add("GET", 200, 0.01)
    counts.add("GET", 200, 0.3)
    counts.add("PATCH", None, 30.0)
    found = {(sample.series.name, *sample.labels): sample.value for sample in counts.read()}
    assert found["rest_client_requests_total", "GET", "200"] == 2
    assert found["rest_client_requests_total", "PATCH", "none"] == 1
    durations = found["rest_client_request_duration_seconds", "GET"]
    assert isinstance(durations, Distribution)
    assert (sum(durations.counts), durations.total) == (2, 0.31)
