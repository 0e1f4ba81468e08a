"""A request says what the protocol describes and nothing else."""

from __future__ import annotations

import json

import pytest
from aiohttp.test_utils import make_mocked_request
from multidict import CIMultiDict

from fedsilo.errors import Problem
from fedsilo_aggregator.request_fields import (
    HEADERS_USED,
    failure_report,
    is_satisfiable,
    query,
    require_each_once,
    require_plain,
)


@pytest.mark.parametrize(
    "text", ["debug=1", "after=&wait=0&debug=1", "after=a&after=b", "After=a", "=", "wait=0&wait=0"]
)
def test_a_query_with_other_fields_or_one_twice_is_malformed(text: str) -> None:
    with pytest.raises(Problem, match=r"^malformed: query "):
        query(make_mocked_request("GET", f"/task?{text}"), "after", "wait")


def test_a_query_may_leave_fields_out() -> None:
    assert query(make_mocked_request("GET", "/task?wait=1&after="), "after", "wait") == {
        "wait": "1",
        "after": "",
    }
    assert query(make_mocked_request("GET", "/task"), "after", "wait") == {}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b'{"reason": "Slow"}',
        b'{"reason": "Slow", "message": "", "round": 3}',
        b'{"reason": "Slow", "message": "", "": ""}',
        b'{"reason": "Slow", "reason": "DataInvalid", "message": ""}',
        b'{"reason": "Slow", "message": "", "message": ""}',
    ],
)
def test_a_failure_report_has_reason_and_message_each_once_and_nothing_else(body: bytes) -> None:
    with pytest.raises(
        Problem, match=r"^malformed: a failure report is a JSON object with reason and message"
    ):
        failure_report(body)


def test_the_message_of_a_failure_report_is_one_line() -> None:
    body = json.dumps({"reason": "Slow", "message": "one\ntwo"}).encode()
    assert failure_report(body) == ("Slow", "one\\ntwo")


@pytest.mark.parametrize(
    ("value", "satisfiable"),
    [
        (None, True),
        ("bytes=0-", True),
        ("bytes=99-", True),
        ("bytes=0-5000", True),
        ("bytes=-5", True),
        ("bytes=100-", False),
        ("bytes=5-2", False),
        ("bytes=-", False),
        ("bytes=0-1,5-6", False),
        ("rows=0-1", False),
        ("bytes=" + "9" * 5000 + "-", False),
    ],
)
def test_a_range_is_one_that_the_file_has(value: str | None, satisfiable: bool) -> None:
    headers = {} if value is None else {"Range": value}
    assert is_satisfiable(make_mocked_request("GET", "/", headers=headers), 100) is satisfiable


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd", "identity, gzip", ""])
def test_a_body_that_must_be_unpacked_is_unsupported(encoding: str) -> None:
    with pytest.raises(Problem, match=r"^unsupported: Content-Encoding is "):
        require_plain(make_mocked_request("PATCH", "/", {"Content-Encoding": encoding}))


@pytest.mark.parametrize("headers", [{}, {"Content-Encoding": "identity"}])
def test_a_body_may_say_that_it_is_as_it_was_sent(headers: dict[str, str]) -> None:
    require_plain(make_mocked_request("PATCH", "/", headers))


@pytest.mark.parametrize("name", HEADERS_USED)
def test_a_header_of_the_protocol_comes_once(name: str) -> None:
    require_each_once(make_mocked_request("PATCH", "/", {name: "a"}))
    with pytest.raises(Problem, match=f"^malformed: header {name}: send it once"):
        require_each_once(make_mocked_request("PATCH", "/", CIMultiDict([(name, "a"), (name.lower(), "a")])))
