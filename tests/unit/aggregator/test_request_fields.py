"""A request says what the protocol describes and nothing else."""

from __future__ import annotations

import json

import pytest
from aiohttp.test_utils import make_mocked_request
from multidict import CIMultiDict

from fedsilo.errors import Problem
from fedsilo_aggregator.request_fields import (
    HEADERS_USED,
    asked_part,
    failure_report,
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
    ("value", "part"),
    [
        (None, None),
        ("bytes=0-", (0, 100)),
        ("bytes=99-", (99, 100)),
        ("bytes=3-5", (3, 6)),
        ("bytes=0-5000", (0, 100)),
        ("bytes=-5", (95, 100)),
        ("bytes=-500", (0, 100)),
    ],
)
def test_a_range_is_a_part_of_the_file(value: str | None, part: tuple[int, int] | None) -> None:
    headers = {} if value is None else {"Range": value}
    assert asked_part(make_mocked_request("GET", "/", headers=headers), 100) == part


@pytest.mark.parametrize(
    "value",
    ["bytes=100-", "bytes=5-2", "bytes=-", "bytes=0-1,5-6", "rows=0-1", "bytes=" + "9" * 5000 + "-"],
)
def test_a_range_that_the_file_does_not_have_is_none(value: str) -> None:
    with pytest.raises(ValueError):
        asked_part(make_mocked_request("GET", "/", headers={"Range": value}), 100)


def test_an_empty_file_has_no_part() -> None:
    assert asked_part(make_mocked_request("GET", "/"), 0) is None
    with pytest.raises(ValueError):
        asked_part(make_mocked_request("GET", "/", headers={"Range": "bytes=-5"}), 0)


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
