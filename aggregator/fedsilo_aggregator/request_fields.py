"""What a request says beside its proof, in query, headers and body; what docs/wire.md does not describe is refused."""

from __future__ import annotations

import json
import re
from typing import Any

from aiohttp import web

from fedsilo.api.conditions import GuardState
from fedsilo.api.data import DataSpec
from fedsilo.data.schema import MAX_SCHEMA_BYTES, Schema
from fedsilo.errors import DataInvalid, Problem
from fedsilo.readiness.announced import AnnouncedFinding
from fedsilo.readiness.statement import MAX_READINESS_BYTES, readiness_of
from fedsilo.wire.problems import one_line
from fedsilo_aggregator.uploads import UploadRange

MAX_FAILURE_BYTES = 16 << 10
"""Largest failure report that a guard may send."""

HEADERS_USED = (
    "Authorization",
    "Range",
    "Content-Encoding",
    "Upload-Offset",
    "Upload-Length",
    "Upload-Digest",
)
"""What the protocol reads of a request's head."""

REPORT = "a failure report is a JSON object with reason and message, each once, and nothing else"

CONDITIONS = ("If-Match", "If-None-Match", "If-Modified-Since", "If-Unmodified-Since", "If-Range")


SCHEMA_PATH = "/schema"
"""End of the path to which a silo announces the schema of its data."""

READINESS_PATH = "/readiness"
"""End of the path to which a silo says before round 1 how its data are."""


async def small_body(request: web.Request) -> bytes:
    """The body of a report, or of a schema.

    :raises Problem: `too-long`.
    """
    if request.path.endswith(SCHEMA_PATH):
        return await _long_body(request, MAX_SCHEMA_BYTES, "a schema")
    if request.path.endswith(READINESS_PATH):
        return await _long_body(request, MAX_READINESS_BYTES, "a schema with findings")
    try:
        return await request.read()
    except web.HTTPRequestEntityTooLarge:
        raise Problem("too-long", f"the body of a report is at most {MAX_FAILURE_BYTES} bytes") from None


async def _long_body(request: web.Request, limit: int, what: str) -> bytes:
    content = bytearray()
    async for piece in request.content.iter_any():
        content += piece
        if len(content) > limit:
            raise Problem("too-long", f"{what} is at most {limit} bytes")
    return bytes(content)


def announced_schema(body: bytes) -> Schema:
    """The schema of a silo's data.

    :raises Problem: `malformed`.
    """
    try:
        return Schema.from_json(body)
    except DataInvalid as error:
        raise Problem("malformed", one_line(error)) from error


def announced_readiness(body: bytes, data: DataSpec) -> tuple[Schema | None, tuple[AnnouncedFinding, ...]]:
    """What a silo says of its data.

    :raises Problem: `malformed`.
    """
    try:
        return readiness_of(body, data)
    except DataInvalid as error:
        raise Problem("malformed", one_line(error)) from error


def require_each_once(request: web.Request) -> None:
    """No header that the protocol uses is there twice: two readers might use different ones.

    :raises Problem: `malformed`.
    """
    for name in HEADERS_USED:
        if len(request.headers.getall(name, ())) > 1:
            raise Problem("malformed", f"header {name}: send it once")


def require_plain(request: web.Request) -> None:
    """The body is what was sent: a few bytes may unpack to very many.

    :raises Problem: `unsupported`.
    """
    encoding = request.headers.get("Content-Encoding", "identity")
    if encoding != "identity":
        raise Problem("unsupported", f"Content-Encoding is {encoding[:32]!r}; send the body as it is")


def query(request: web.Request, *names: str) -> dict[str, str]:
    """The query's fields, some of these and each once.

    :raises Problem: `malformed` for any other.
    """
    found = list(request.query.items())
    for name, value in found:
        if name not in names:
            raise Problem(
                "malformed", f"query {name[:32]}={value[:32]!r}: send only {', '.join(names) or 'no query'}"
            )
    if len(dict(found)) < len(found):
        raise Problem("malformed", f"query {request.query_string[:80]!r}: send each field once")
    return dict(found)


def seconds(text: str, name: str) -> float:
    """A duration of the query.

    :raises Problem: `malformed`.
    """
    if not re.fullmatch(r"[0-9]{1,6}(\.[0-9]{1,6})?", text):
        raise Problem("malformed", f"{name}={text[:32]!r} is not a number of seconds")
    return float(text)


def upload_range(request: web.Request) -> UploadRange:
    """Where the bytes of an upload belong.

    :raises Problem: `malformed`.
    """
    return UploadRange(
        _bytes(request, "Upload-Offset"), _bytes(request, "Upload-Length"), upload_digest(request)
    )


def _bytes(request: web.Request, name: str) -> int:
    text = request.headers.get(name, "")
    if not re.fullmatch(r"[0-9]{1,18}", text):
        raise Problem("malformed", f"header {name}: {text[:32]!r} is not a number of bytes")
    return int(text)


def upload_digest(request: web.Request) -> str:
    """Digest of the update that a request is about.

    :raises Problem: `malformed`.
    """
    text = request.headers.get("Upload-Digest", "")
    if not re.fullmatch(r"[0-9a-f]{64}", text):
        raise Problem("malformed", f"header Upload-Digest: {text[:80]!r} is not a hex sha256")
    return text


def require_unconditional(request: web.Request) -> None:
    """Return if the request has no condition (RFC 9110, section 13): a blob's name says what is in it.

    :raises Problem: `malformed`.
    """
    for name in CONDITIONS:
        if name in request.headers:
            raise Problem("malformed", f"{name}: a blob never changes; ask for it without a condition")


def asked_part(request: web.Request, size: int) -> tuple[int, int] | None:
    """First byte, and the one after the last, of the part of a file that the request wants (RFC 9110, section 14.1).

    :param size: bytes of the file.
    :returns: None where it wants all of it.
    :raises ValueError: when it wants something that the file does not have.
    """
    asked = request.http_range
    if asked.start is None:
        return None
    begin, end, _ = asked.indices(size)
    if begin >= end:
        raise ValueError(f"the file has {size} bytes")
    return begin, end


def failure_report(body: bytes) -> tuple[str, str]:
    """Reason and message of a failure report; the message is safe for a log.

    :raises Problem: `malformed`.
    """
    try:
        report = json.loads(body, object_pairs_hook=_each_once)
    except (ValueError, RecursionError):
        raise Problem("malformed", REPORT) from None
    if not isinstance(report, dict) or report.keys() != {"reason", "message"}:
        raise Problem("malformed", REPORT)
    reason, message = report["reason"], report["message"]
    if not (
        isinstance(reason, str) and re.fullmatch(r"[A-Z][A-Za-z]{0,63}", reason) and isinstance(message, str)
    ):
        raise Problem(
            "malformed", f"failure reason {str(reason)[:64]!r} is not a CamelCase word, or message no text"
        )
    return reason, one_line(message)


def guard_state(body: bytes) -> GuardState | None:
    """What keeps a guard from going on, as it says; None when nothing does any more.

    :raises Problem: `malformed`.
    """
    try:
        said = json.loads(body, object_pairs_hook=_each_once)
        if not isinstance(said, dict) or said.keys() != {"state"}:
            raise ValueError("another field")
        return None if said["state"] is None else GuardState(said["state"])
    except (ValueError, RecursionError):
        known = ", ".join(GuardState)
        raise Problem(
            "malformed", f"a heartbeat is a JSON object with state: null, or one of {known}"
        ) from None


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a field is given twice")
    return found
