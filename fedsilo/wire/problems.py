"""The refusals of the protocol: every code, and the HTTP status under which it travels.

A code is part of the protocol: clients act on it (`already-accepted` ends an upload, `offset-mismatch` makes
it go on elsewhere), so a code is never renamed and never changes its meaning.
"""

from __future__ import annotations

from fedsilo.errors import Problem

STATUS: dict[str, int] = {
    # what was sent cannot be read
    "malformed": 400,
    "truncated": 400,
    "interrupted": 400,
    "too-long": 413,
    "unsupported": 415,
    # who sent it
    "signature-invalid": 401,
    "proof-expired": 401,
    "unknown-sender": 403,
    "wrong-sender": 403,
    "invitation-invalid": 403,
    "invitation-used": 409,
    "invitation-expired": 410,
    "not-accepted": 403,
    "key-superseded": 409,
    "silo-left": 410,
    # what it belongs to
    "wrong-job": 404,
    "unknown-task": 404,
    "unknown-blob": 404,
    "unknown-agent": 404,
    "range-not-satisfiable": 416,
    "wrong-round": 409,
    "wrong-task": 409,
    "contract-mismatch": 409,
    "task-mismatch": 409,
    "already-accepted": 409,
    "offset-mismatch": 409,
    "round-closed": 410,
    "job-finished": 410,
    "schema-mismatch": 409,
    "not-ready": 409,
    # what is in it
    "digest-mismatch": 422,
    "unexpected-block": 422,
    "missing-block": 422,
    "wrong-kind": 422,
    "wrong-shape": 422,
    "wrong-dtype": 422,
    "not-finite": 422,
    "unexpected-metric": 422,
    "missing-metric": 422,
    "out-of-range": 422,
    # the receiver's own limits
    "too-many-requests": 429,
    "unreachable": 503,
    "storage-full": 507,
}


def problem_document(problem: Problem) -> dict[str, str | int]:
    """What is sent as `application/problem+json` (RFC 9457, section 3).

    :raises KeyError: for a code that `STATUS` does not have; that is a defect of the code that raised it.
    """
    return {
        "type": f"urn:fedsilo:problem:{problem.code}",
        "title": problem.code.replace("-", " ").capitalize(),
        "status": STATUS[problem.code],
        "detail": problem.detail,
    }


def one_line(text: object) -> str:
    """Text from the other side, safe for a log or a terminal: it can neither pass for a line of ours nor colour it."""
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in str(text)
    )
