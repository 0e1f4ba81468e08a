"""Envelopes, tasks, requests and keys."""

from __future__ import annotations

import base64
import dataclasses
import stat
from pathlib import Path
from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsilo.errors import Problem
from fedsilo.wire import (
    PROVENANCE,
    REQUEST,
    TASK,
    UPDATE,
    BlobLink,
    ChainEnd,
    SigningKey,
    Task,
    VerifyKey,
    open_chain,
    open_envelope,
    open_task,
    require_algorithm,
    seal,
    seal_chain,
    seal_task,
    sign_request,
    task_digest,
    verify_request,
)
from fedsilo.wire.fields import FieldReader, pack
from tests.unit.wire.examples import refusal

KEY = SigningKey.generate()
EXAMPLE = Task(
    job="job-uid",
    silo="silo-north/north",
    task="task-3",
    round=3,
    phase="encoder",
    step="train",
    spec_digest=bytes(32),
    contract=bytes(range(32)),
    blobs=(BlobLink("global", "ab" * 32, 4096),),
    settings={"mu": 0.01, "cluster": 1, "name": "größe", "frozen": False},
)

scalars = (
    st.booleans() | st.integers(-(1 << 63), (1 << 63) - 1) | st.floats(allow_nan=False) | st.text(max_size=9)
)
maps = st.dictionaries(st.text(max_size=9), scalars | st.binary(max_size=9) | st.lists(scalars, max_size=3))


@given(fields=maps)
def test_an_envelope_returns_what_was_sealed(fields: dict[str, Any]) -> None:
    assert open_envelope(TASK, seal(TASK, fields, KEY), KEY.verify_key) == fields


def test_an_envelope_is_two_bins_that_any_msgpack_reader_reads() -> None:
    unpacker = msgpack.Unpacker()
    unpacker.feed(seal(TASK, {"a": 1}, KEY))
    header, signature = unpacker
    assert (header, len(signature)) == (pack({"a": 1}), 64)


def test_a_signature_holds_in_its_domain_only() -> None:
    with refusal("signature-invalid"):
        open_envelope(UPDATE, seal(TASK, {"a": 1}, KEY), KEY.verify_key)
    with refusal("signature-invalid"):
        open_envelope(TASK, seal(TASK, {"a": 1}, KEY), SigningKey.generate().verify_key)


def test_every_damage_to_an_envelope_is_refused() -> None:
    data = seal(TASK, {"a": 1, "b": b"x" * 300}, KEY)
    for position in range(len(data)):
        for bad in (data[:position], data[:position] + bytes([data[position] ^ 4]) + data[position + 1 :]):
            with pytest.raises(Problem):
                open_envelope(TASK, bad, KEY.verify_key)
    with refusal("too-long"):
        open_envelope(TASK, data + b"\xc0", KEY.verify_key)


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"\xc1",
        b"\x93\x01\x02\x03",  # an array
        b"\x82\xa1a\x01\xa1a\x01",  # one key twice
        b"\x81\xa1a\xcc\x01",  # 1 in two bytes
        b"\x81\xa1a\xca\x3f\x80\x00\x00",  # float32
        b"\x81\xa1a\xd4\x05\x00",  # an extension type
        b"\x81\xa1a\xd6\xff\x00\x00\x00\x00",  # a timestamp
        b"\x81\xa1a\xc0",  # nil
        b"\x81\x01\x01",  # a key that is no text
        b"\x81\xc4\x01a\x01",  # a key of bytes
        b"\x81\xa1a\xa2\xff\xff",  # no UTF-8
        b"\x81\xa1a\x01\x01",  # more than a map
        b"\x81\xa1a" + b"\x91" * 600 + b"\x01",  # too deep
        b"\x81\xa1a" + b"\xdd\x0f\xff\xff\xff" * 600,  # lengths that are not there
    ],
)
def test_headers_that_are_not_canonical_maps_are_refused(header: bytes) -> None:
    data = pack(header) + b"\xc4\x40" + KEY.sign(TASK, header)
    with refusal("malformed"):
        open_envelope(TASK, data, KEY.verify_key)


def test_a_bin_head_must_have_the_shortest_form() -> None:
    header = pack({"a": 1})
    for head in (b"\xc5\x00", b"\xc6\x00\x00\x00"):
        with refusal("malformed"):
            open_envelope(
                TASK,
                head + bytes([len(header)]) + header + b"\xc4\x40" + KEY.sign(TASK, header),
                KEY.verify_key,
            )


def test_an_envelope_is_small() -> None:
    with refusal("too-long"):
        seal(TASK, {"a": bytes(1 << 20)}, KEY)
    with refusal("too-long"):
        open_envelope(TASK, bytes((1 << 20) + 1), KEY.verify_key)


@settings(max_examples=300)
@given(noise=st.binary(max_size=120))
def test_noise_raises_nothing_but_problems(noise: bytes) -> None:
    signed = pack(noise) + b"\xc4\x40" + KEY.sign(TASK, noise)
    for data in (noise, signed):
        with pytest.raises(Problem):
            open_task(data, KEY.verify_key)


def test_a_task_returns_as_it_was() -> None:
    data = seal_task(EXAMPLE, KEY)
    assert open_task(data, KEY.verify_key) == EXAMPLE
    assert len(task_digest(data)) == 32
    assert seal_task(EXAMPLE, KEY) == data


BLOB = BlobLink("model", "blake3-" + "cd" * 32, 4096)


def test_a_blob_with_blake3_returns_as_it_was_and_one_with_sha256_is_written_as_before() -> None:
    task = dataclasses.replace(EXAMPLE, blobs=(*EXAMPLE.blobs, BLOB))
    assert open_task(seal_task(task, KEY), KEY.verify_key) == task
    plain, named = open_envelope(TASK, seal_task(task, KEY), KEY.verify_key)["blobs"]
    assert plain == {"name": "global", "digest": bytes.fromhex("ab" * 32), "length": 4096}
    assert named == {
        "name": "model",
        "digest": bytes.fromhex("cd" * 32),
        "length": 4096,
        "algorithm": "blake3",
    }


@pytest.mark.parametrize(
    ("code", "changes"),
    [
        ("unsupported", {"algorithm": "sha256"}),  # there is one way to say it
        ("unsupported", {"algorithm": "md5"}),
        ("malformed", {"algorithm": ""}),
        ("malformed", {"algorithm": 1}),
        ("malformed", {"digest": "cd" * 32}),
        ("malformed", {"digest": bytes(31)}),
        ("malformed", {"hash": "blake3"}),
    ],
)
def test_a_blob_whose_hash_is_not_known_is_refused(code: str, changes: dict[str, Any]) -> None:
    fields = open_envelope(TASK, seal_task(dataclasses.replace(EXAMPLE, blobs=(BLOB,)), KEY), KEY.verify_key)
    (link,) = fields["blobs"]
    with refusal(code):
        open_task(seal(TASK, fields | {"blobs": [link | changes]}, KEY), KEY.verify_key)


def test_every_blob_of_a_task_has_the_jobs_hash_but_the_one_that_the_job_names() -> None:
    task = dataclasses.replace(EXAMPLE, blobs=(*EXAMPLE.blobs, BLOB))
    require_algorithm(EXAMPLE, "sha256", None)
    require_algorithm(task, "blake3", "ab" * 32)
    with pytest.raises(
        Problem, match=r"task-mismatch: .*blob global has SHA-256 abababababab; the job asks for BLAKE3"
    ):
        require_algorithm(task, "blake3", "cd" * 32)
    with pytest.raises(
        Problem, match=r"task-mismatch: .*blob model has BLAKE3 cdcdcdcdcdcd; the job asks for SHA-256"
    ):
        require_algorithm(task, "sha256", None)


@pytest.mark.parametrize(
    ("code", "changes"),
    [
        ("malformed", {"job": ""}),
        ("malformed", {"round": -1}),
        ("malformed", {"spec_digest": b"short"}),
        ("malformed", {"settings": {"a": [1]}}),
        ("malformed", {"settings": {"a b": 1}}),
        ("not-finite", {"settings": {"a": float("nan")}}),
        ("malformed", {"blobs": EXAMPLE.blobs * 2}),
        ("malformed", {"blobs": (BlobLink("a", "ab", 1),)}),
        ("malformed", {"blobs": (BlobLink("a", "blake3-ab", 1),)}),
    ],
)
def test_a_task_that_could_not_be_opened_is_not_sealed(code: str, changes: dict[str, Any]) -> None:
    with refusal(code):
        seal_task(dataclasses.replace(EXAMPLE, **changes), KEY)


def test_a_task_of_another_protocol_is_unsupported_whatever_else_it_has() -> None:
    with refusal("unsupported"):
        open_task(seal(TASK, {"protocol": 2, "new": 1}, KEY), KEY.verify_key)
    with refusal("malformed"):
        open_task(seal(TASK, {"new": 1}, KEY), KEY.verify_key)


def test_messages_name_object_field_value_and_remedy() -> None:
    with pytest.raises(Problem) as caught:
        FieldReader("task", {"round": -1}, ("round",)).integer("round")
    assert str(caught.value) == f"malformed: task: round is -1; must be an integer from 0 to {(1 << 63) - 1}"
    with pytest.raises(Problem, match=r"^malformed: task: unknown field 'x' = 3; send only a$"):
        FieldReader("task", {"x": 3}, ("a",))


REQUEST_ARGUMENTS: dict[str, Any] = {
    "job": "job-uid",
    "method": "GET",
    "path": "/v1/jobs/digits/task?after=t2&wait=30",
    "body": None,
}
SENDER = "silo-north/north"
KEYS = {SENDER: KEY.verify_key}


def proof(now: float = 1000.5, **changes: Any) -> str:
    return sign_request(KEY, sender=SENDER, now=now, **(REQUEST_ARGUMENTS | changes))


def test_a_proof_names_its_sender() -> None:
    assert verify_request(proof(), KEYS, now=1030, **REQUEST_ARGUMENTS) == SENDER
    arguments = REQUEST_ARGUMENTS | {"method": "POST", "body": b"{}"}
    assert verify_request(proof(method="POST", body=b"{}"), KEYS, now=1030, **arguments) == SENDER


@pytest.mark.parametrize(
    ("code", "changes"),
    [
        ("wrong-job", {"job": "another"}),
        ("signature-invalid", {"method": "DELETE"}),
        ("signature-invalid", {"path": "/v1/jobs/digits/task"}),
        ("malformed", {"body": b""}),
        ("proof-expired", {"now": 1000.5 + 60 + 32}),
        ("proof-expired", {"now": 1000 - 31}),
    ],
)
def test_a_proof_is_for_one_request_and_a_short_time(code: str, changes: dict[str, Any]) -> None:
    with refusal(code):
        verify_request(proof(), KEYS, **({"now": 1001} | REQUEST_ARGUMENTS | changes))


def test_a_bound_body_cannot_be_exchanged() -> None:
    for body in (b"other", b""):
        with refusal("signature-invalid"):
            verify_request(proof(body=b"{}"), KEYS, now=1001, **(REQUEST_ARGUMENTS | {"body": body}))


def test_a_proof_of_an_unknown_sender_or_another_key_is_refused() -> None:
    with refusal("unknown-sender"):
        verify_request(proof(), {}, now=1001, **REQUEST_ARGUMENTS)
    with refusal("signature-invalid"):
        verify_request(proof(), {SENDER: SigningKey.generate().verify_key}, now=1001, **REQUEST_ARGUMENTS)


def test_a_proof_cannot_be_made_to_last() -> None:
    with refusal("malformed"):
        proof(lifetime=3600)


@pytest.mark.parametrize(
    "value", ["", "Fedsilo", "Fedsilo ", "Bearer abc", "Fedsilo a", "Fedsilo @@@@", "Fedsilo ü"]
)
def test_other_authorizations_are_refused(value: str) -> None:
    with pytest.raises(Problem, match=r"^(malformed|truncated): "):
        verify_request(value, KEYS, now=1001, **REQUEST_ARGUMENTS)
    for tail in ("=", "A", " ", "\n"):
        with pytest.raises(Problem):
            verify_request(proof() + tail, KEYS, now=1001, **REQUEST_ARGUMENTS)


@given(
    noise=st.text(max_size=60)
    | st.binary(max_size=60).map(lambda raw: base64.urlsafe_b64encode(raw).decode())
)
def test_noise_proves_nothing(noise: str) -> None:
    with pytest.raises(Problem):
        verify_request("Fedsilo " + noise, KEYS, now=1001, **REQUEST_ARGUMENTS)


def test_a_key_is_saved_for_its_owner_only_and_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "key.pem"
    KEY.save(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert SigningKey.load(path).verify_key == KEY.verify_key
    with pytest.raises(FileExistsError):
        SigningKey.generate().save(path)
    assert [found.name for found in tmp_path.iterdir()] == ["key.pem"]
    path.write_text("no key")
    with refusal("malformed"):
        SigningKey.load(path)


def test_public_keys_have_one_text() -> None:
    # RFC 8032, section 7.1, test 1
    raw = bytes.fromhex("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a")
    key = VerifyKey.from_text("ed25519:11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=")
    assert key.raw == raw
    assert VerifyKey.from_text(key.to_text()) == key
    assert len(key.key_id) == 16
    for bad in (
        "",
        key.to_text()[:-1],
        key.to_text() + "\n",
        "rsa:" + key.to_text()[8:],
        "ed25519:AAAA",
        "ed25519:ü",
    ):
        with refusal("malformed"):
            VerifyKey.from_text(bad)


def test_domains_differ() -> None:
    assert len({UPDATE, TASK, REQUEST}) == 3
    assert KEY.sign(UPDATE, b"x") != KEY.sign(TASK, b"x")


def test_the_seal_of_a_chain_returns_where_it_ends() -> None:
    end = ChainEnd("job-uid", 7, bytes(range(32)))
    assert open_chain(seal_chain(end, KEY), KEY.verify_key) == end


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"protocol": 2}, "unsupported"),
        ({"job": ""}, "malformed"),
        ({"lines": -1}, "malformed"),
        ({"chain": bytes(31)}, "malformed"),
        ({"more": 1}, "malformed"),
    ],
)
def test_a_seal_that_says_anything_else_is_refused(change: dict[str, object], code: str) -> None:
    fields = {"protocol": 1, "job": "job-uid", "lines": 7, "chain": bytes(32), **change}
    with refusal(code):
        open_chain(seal(PROVENANCE, fields, KEY), KEY.verify_key)
