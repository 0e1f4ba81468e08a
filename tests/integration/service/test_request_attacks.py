"""Attacks on a request: proofs that prove nothing, fields that say nothing, paths that lead elsewhere."""

from __future__ import annotations

import base64
import time
import zlib
from collections.abc import Callable

import pytest

from fedsilo.wire import SigningKey, sign_request
from tests.integration.service.client import SiloClient, answer_on, finish_job
from tests.integration.service.conftest import Job
from tests.integration.service.site import wait_until

NORTH, SOUTH = "r00001-train-north", "r00001-train-south"

Proof = Callable[[SiloClient, str], str]


def stranger(client: SiloClient, path: str) -> str:
    return sign_request(
        SigningKey.generate(),
        job=client.site.uid,
        sender="silo-mallory/mallory",
        method="GET",
        path=path,
        body=None,
        now=time.time(),
    )


def tampered_proof(proof: str) -> str:
    """The proof with one bit of its signature changed."""
    raw = proof.removeprefix("Fedsilo ")
    data = bytearray(base64.urlsafe_b64decode(raw + "=" * (-len(raw) % 4)))
    data[-1] ^= 1
    return "Fedsilo " + base64.urlsafe_b64encode(data).decode().rstrip("=")


PROOFS: dict[str, tuple[Proof, str]] = {
    "none": (lambda _c, _p: "", "malformed"),
    "another scheme": (lambda _c, _p: "Bearer token", "malformed"),
    "garbage": (lambda _c, _p: "Fedsilo !!!", "malformed"),
    "bytes that are no envelope": (lambda _c, _p: "Fedsilo AAAA", "malformed"),
    "an envelope that ends early": (lambda c, p: c.proof("GET", p)[:-40], "truncated"),
    "an envelope as large as a book": (lambda _c, _p: "Fedsilo " + "A" * 6000, "too-long"),
    "a changed signature": (lambda c, p: tampered_proof(c.proof("GET", p)), "signature-invalid"),
    "expired": (lambda c, p: c.proof("GET", p, now=time.time() - 3600), "proof-expired"),
    "from the future": (lambda c, p: c.proof("GET", p, now=time.time() + 3600), "proof-expired"),
    "for another path": (lambda c, _p: c.proof("GET", f"{c.base}/blobs/0"), "signature-invalid"),
    "for another query": (lambda c, p: c.proof("GET", p + "0"), "signature-invalid"),
    "for another method": (lambda c, p: c.proof("HEAD", p), "signature-invalid"),
    "for another job": (lambda c, p: c.proof("GET", p, job="another"), "wrong-job"),
    "of a silo that is not of the job": (stranger, "unknown-sender"),
    "in the name of another silo": (
        lambda c, p: c.proof("GET", p, sender="silo-south/south"),
        "signature-invalid",
    ),
}


@pytest.mark.parametrize("proof", PROOFS)
def test_proof_is_refused_that_is(proof: str, job: Job) -> None:
    make, code = PROOFS[proof]
    path = f"{job.north.base}/task?after=&wait=0"
    job.expect(code, job.north.request("GET", path, proof=make(job.north, path)))


def test_a_report_whose_body_was_changed_is_refused(job: Job) -> None:
    path = f"{job.north.base}/failures/{NORTH}"
    proof = job.north.proof("POST", path, b'{"reason": "Slow", "message": ""}')
    answer = job.north.request("POST", path, body=b'{"reason": "DataInvalid", "message": ""}', proof=proof)
    job.expect("signature-invalid", answer)


def test_a_report_whose_proof_binds_no_body_is_refused(job: Job) -> None:
    path = f"{job.north.base}/failures/{NORTH}"
    answer = job.north.request("POST", path, body=b"{}", proof=job.north.proof("POST", path))
    job.expect("malformed", answer)


def test_another_jobs_path_is_refused_before_anything_else(job: Job) -> None:
    job.expect("wrong-job", job.north.request("GET", "/v1/jobs/another/task", proof=""))
    job.expect("wrong-job", job.north.request("GET", "/", proof=""))


def test_another_silos_task_is_refused(job: Job) -> None:
    update = job.north.update(job.north.fetch_task())
    job.expect("wrong-sender", job.north.patch(SOUTH, update))
    job.expect("wrong-sender", job.north.head(SOUTH))
    job.expect("wrong-sender", job.north.fail(SOUTH, b'{"reason": "DataInvalid", "message": "stop"}'))


def test_a_task_that_does_not_exist_is_refused(job: Job) -> None:
    for task in ("r00002-train-north", "finish", "x" * 300):
        job.expect("unknown-task", job.north.head(task))


@pytest.mark.parametrize(
    "way",
    [
        "updates/..%2F..%2Fstate.json",
        "updates/%2Fetc%2Fpasswd",
        "updates/.",
        "updates/a\u0000b".encode("unicode_escape").decode().replace("\\x00", "%00"),
    ],
)
def test_path_traversal_in_a_task_finds_nothing(way: str, job: Job) -> None:
    job.expect(
        "unknown-task", job.north.request("HEAD", f"{job.north.base}/{way}", {"Upload-Digest": "0" * 64})
    )


@pytest.mark.parametrize("digest", ["..%2Fstate.json", "%2e%2e%2fjob.json", "%2Fetc%2Fpasswd", "0" * 64])
def test_path_traversal_in_a_digest_finds_nothing(digest: str, job: Job) -> None:
    job.expect("unknown-blob", job.north.request("GET", f"{job.north.base}/blobs/{digest}"))


@pytest.mark.parametrize("way", ["blobs/../state.json", "blobs/a/b", "blobs/", "status.json", ""])
def test_a_path_that_the_protocol_does_not_have_is_refused(way: str, job: Job) -> None:
    job.expect("malformed", job.north.request("GET", f"{job.north.base}/{way}"))


def test_a_method_that_the_protocol_does_not_have_is_refused(job: Job) -> None:
    job.expect("malformed", job.north.request("DELETE", f"{job.north.base}/updates/{NORTH}"))


@pytest.mark.parametrize("header", ["Upload_Offset", "Upload_Length", "Upload_Digest"])
@pytest.mark.parametrize("value", ["", "-1", "1e3", "0x10", "9" * 40, "A" * 64])
def test_malformed_upload_header_is_refused(header: str, value: str, job: Job) -> None:
    job.expect("malformed", job.north.patch(NORTH, b"x", 0, **{header: value}))


@pytest.mark.parametrize("wait", ["-1", "nan", "1e9", "soon", "9" * 30])
def test_malformed_wait_is_refused(wait: str, job: Job) -> None:
    job.expect("malformed", job.north.request("GET", f"{job.north.base}/task?wait={wait}"))


@pytest.mark.parametrize("asked", ["debug=1", "wait=0&debug=1", "after=a&after=b"])
def test_a_query_that_the_protocol_does_not_have_is_refused(asked: str, job: Job) -> None:
    job.expect("malformed", job.north.request("GET", f"{job.north.base}/task?{asked}"))


def test_a_query_of_an_upload_is_refused(job: Job) -> None:
    path = f"{job.north.base}/updates/{NORTH}?force=1"
    job.expect("malformed", job.north.request("HEAD", path, {"Upload-Digest": "0" * 64}))


@pytest.mark.parametrize("wanted", ["bytes=99999999-", "bytes=5-2", "bytes=0-1,5-6", "rows=1-2"])
def test_a_part_that_a_blob_does_not_have_is_refused(wanted: str, job: Job) -> None:
    link = job.north.task().blobs[0]
    answer = job.north.request("GET", f"{job.north.base}/blobs/{link.digest}", {"Range": wanted})
    job.expect("range-not-satisfiable", answer)
    assert answer.headers["Content-Range"] == f"bytes */{link.length}"


def test_an_upload_from_an_offset_that_does_not_follow_is_refused(job: Job) -> None:
    job.expect("offset-mismatch", job.north.patch(NORTH, b"x" * 100, offset=50))


def test_an_answer_to_head_names_the_refusal_in_a_header(job: Job) -> None:
    answer = job.north.request("HEAD", f"{job.north.base}/updates/{NORTH}")
    assert (answer.status, answer.headers["Problem"], answer.body) == (400, "malformed", b"")
    job.refused["malformed"] += 1


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff",
        b"[]",
        b'{"reason": "Slow"}',
        b'{"reason": 7, "message": ""}',
        b'{"reason": "no camel", "message": ""}',
        b'{"reason": "Slow", "message": 7}',
        b'{"reason": "Slow", "message": "", "round": 3}',
        b'{"reason": "Slow", "reason": "DataInvalid", "message": ""}',
        b"[" * 10_000,
    ],
)
def test_malformed_failure_report_is_refused(body: bytes, job: Job) -> None:
    job.expect("malformed", job.north.fail(NORTH, body))


def test_failure_report_larger_than_16_kib_is_refused(job: Job) -> None:
    job.expect("too-long", job.north.fail(NORTH, b"x" * (17 << 10)))


def test_failure_report_that_unpacks_to_more_than_16_kib_is_refused(job: Job) -> None:
    path, body = f"{job.north.base}/failures/{NORTH}", zlib.compress(b"x" * (64 << 20))
    headers = {"Content-Encoding": "deflate"}
    job.expect(
        "too-long", job.north.request("POST", path, headers, body, job.north.proof("POST", path, body))
    )


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"\x16\x03\x01\r\n\r\n", "malformed"),
        (b"GET / HTTP/1.1\r\nHost : a\r\n\r\n", "malformed"),
        (b"GET / HTTP/1.1\r\nHost: a\r\nAuthorization: " + b"A" * 9000 + b"\r\n\r\n", "too-long"),
    ],
)
def test_what_is_no_request_is_refused(data: bytes, code: str, job: Job) -> None:
    with job.north.socket() as connection:
        connection.sendall(data)
        job.expect(code, answer_on(connection))


def test_a_body_that_is_not_encoded_as_it_says_is_refused(job: Job) -> None:
    path = f"{job.north.base}/updates/{NORTH}"
    lines = [
        f"PATCH {path} HTTP/1.1",
        "Host: a",
        f"Authorization: {job.north.proof('PATCH', path)}",
        "Transfer-Encoding: chunked",
        "Upload-Offset: 0",
        "Upload-Length: 100",
        f"Upload-Digest: {'0' * 64}",
    ]
    with job.north.socket() as connection:
        connection.sendall("\r\n".join([*lines, "", "no length\r\n"]).encode())
        job.expect("malformed", answer_on(connection))


def test_an_upload_whose_connection_is_cut_is_counted(job: Job) -> None:
    with job.north.begin(NORTH, bytes(1000)) as connection:
        connection.sendall(bytes(10))
    job.refused["interrupted"] += 1
    wait_until(lambda: ": interrupted: the connection ended" in job.site.log(), "the cut upload in the log")


@pytest.mark.parametrize("name", ["If-Match", "If-None-Match", "If-Unmodified-Since", "If-Range"])
def test_a_condition_on_a_blob_is_refused(name: str, job: Job) -> None:
    link = job.north.task().blobs[0]
    path = f"{job.north.base}/blobs/{link.digest}"
    job.expect("malformed", job.north.request("GET", path, {name: "Sun, 22 Nov 2026 00:00:00 GMT"}))


def test_nothing_that_a_stranger_sends_becomes_a_line_of_the_log(job: Job) -> None:
    forged = "%0a2026-01-01 00:00:00,000 WARNING forged".replace(" ", "%20")
    job.expect("wrong-job", job.north.request("GET", f"/v1/jobs/x{forged}", proof=""))
    job.expect("unknown-task", job.north.head(f"x{forged}"))
    assert not [line for line in job.site.log().splitlines() if line.endswith("WARNING forged")]


def test_nothing_of_all_this_is_a_defect(job: Job) -> None:
    assert "Traceback" not in job.site.log()


def test_every_refusal_was_reported_and_the_job_reaches_its_model(job: Job) -> None:
    job.assert_all_refusals_were_reported()
    assert finish_job(job.north, job.south) == [True, True]
    assert job.aggregator.exit_code() == 0
