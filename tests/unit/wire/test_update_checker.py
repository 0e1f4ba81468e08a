"""Updates as a stream from somebody who may be hostile."""

from __future__ import annotations

import dataclasses
import hashlib
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from blake3 import blake3
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsilo.errors import MethodError, Problem
from fedsilo.wire import Contract, SigningKey, UpdateCheck, new_update, open_update, stored_digest
from fedsilo.wire.fields import pack, unpack_map
from fedsilo.wire.header import encode_header
from fedsilo.wire.keys import UPDATE
from tests.unit.wire.examples import (
    CONTRACT,
    EXPECTED_UPDATE,
    KEY,
    changed_header,
    check,
    contents_of,
    forge,
    forge_signed,
    outcome,
    payloads,
    refusal,
    write,
)
from tests.updates import digest_of


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return write(tmp_path_factory.mktemp("update") / "update")


def test_an_update_without_blocks_ends_after_the_signature(tmp_path: Path) -> None:
    contract = Contract((), ("loss",))
    data = write(tmp_path / "update", contract=contract, blocks=[], metrics={})
    expected = dataclasses.replace(EXPECTED_UPDATE, contract=contract)
    assert check(data, expected=expected).header.length == 0
    with refusal("too-long"):
        check(data + b"\xc0", expected=expected)
    with open_update(tmp_path / "update") as update:
        assert update.names("model") == []


@settings(max_examples=60)
@given(cuts=st.lists(st.integers(0, 400), max_size=12))
def test_any_chunking_gives_the_same_verdict(data: bytes, cuts: list[int]) -> None:
    flipped = bytearray(data)
    flipped[-1] ^= 1
    assert outcome(data, *cuts) == digest_of(data)
    assert outcome(bytes(flipped), *cuts) == "digest-mismatch"
    assert outcome(data + b"\xc0", *cuts) == "too-long"


@settings(max_examples=60)
@given(cuts=st.lists(st.integers(0, 400), max_size=12), position=st.integers(0, 2000))
def test_the_same_holds_with_blake3(
    tmp_path_factory: pytest.TempPathFactory, cuts: list[int], position: int
) -> None:
    expected = dataclasses.replace(
        EXPECTED_UPDATE, contract=dataclasses.replace(EXPECTED_UPDATE.contract, algorithm="blake3")
    )
    path = tmp_path_factory.mktemp("update") / "update"
    data = write(path, contract=expected.contract)
    accepted = check(data, *cuts, expected=expected)
    assert accepted.digest == digest_of(data) == stored_digest(path)
    contents = contents_of(data, accepted.header)
    assert [blake3(content).digest() for content in contents] == [b.digest for b in accepted.header.blocks]
    damaged = bytearray(data)
    damaged[position % len(data)] ^= 1
    with pytest.raises(Problem):
        check(bytes(damaged), *cuts, expected=expected)
    assert outcome(data, *cuts) == "contract-mismatch"


def test_digests_of_one_hash_under_the_name_of_another_are_refused(data: bytes) -> None:
    contract = dataclasses.replace(EXPECTED_UPDATE.contract, algorithm="blake3")
    header = changed_header(check(data).header, algorithm="blake3", contract=bytes.fromhex(contract.digest()))
    with refusal("digest-mismatch"):
        expected = dataclasses.replace(EXPECTED_UPDATE, contract=contract)
        check(forge(header, contents_of(data, header)), expected=expected)


def test_an_update_with_another_hash_than_the_contracts_is_not_written(tmp_path: Path, data: bytes) -> None:
    header = changed_header(check(data).header, algorithm="blake3")
    with refusal("contract-mismatch"), new_update(tmp_path / "update", header, EXPECTED_UPDATE.contract, KEY):
        pass
    assert list(tmp_path.iterdir()) == []


def test_byte_by_byte_is_accepted(data: bytes) -> None:
    assert outcome(data, *[1] * len(data)) == digest_of(data)


def test_every_flipped_byte_is_refused(data: bytes) -> None:
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 1 << (position % 8)
        assert re.fullmatch(r"[a-z-]+", outcome(bytes(damaged))), position


def test_every_truncation_is_refused(data: bytes) -> None:
    assert {outcome(data[:length]) for length in range(len(data))} == {"truncated"}


@settings(max_examples=200)
@given(noise=st.binary(max_size=300), at=st.integers(0, 2000), keep=st.booleans())
def test_noise_raises_nothing_but_problems(data: bytes, noise: bytes, at: int, keep: bool) -> None:
    mixed = data[:at] + noise + (data[at:] if keep else b"")
    if mixed != data:
        assert "-" in outcome(mixed) or outcome(mixed) in ("malformed", "truncated")


@settings(max_examples=200)
@given(noise=st.binary(max_size=200))
def test_signed_noise_raises_nothing_but_problems(noise: bytes) -> None:
    signed = pack(noise) + b"\xc4\x40" + KEY.sign(UPDATE, noise)
    assert outcome(signed) == "malformed"


def test_a_refusal_is_final(data: bytes) -> None:
    checker = UpdateCheck(EXPECTED_UPDATE, SigningKey.generate().verify_key)
    with refusal("signature-invalid"):
        checker.feed(data)
    with refusal("signature-invalid"):
        checker.feed(b"")
    with refusal("signature-invalid"):
        checker.finish()
    assert checker.header is None


def test_the_header_is_judged_before_any_block_arrives(data: bytes) -> None:
    header = check(data).header
    forged = forge(changed_header(header, round=4), contents_of(data, header))
    checker = UpdateCheck(EXPECTED_UPDATE, KEY.verify_key)
    with refusal("wrong-round"):
        checker.feed(forged[: len(forged) - header.length])


@pytest.mark.parametrize(
    ("code", "changes"),
    [
        ("wrong-job", {"job": "another"}),
        ("wrong-task", {"task": "task-2"}),
        ("wrong-round", {"round": 2}),
        ("wrong-sender", {"sender": "silo-south/south"}),
        ("contract-mismatch", {"contract": bytes(32)}),
        ("contract-mismatch", {"algorithm": "blake3"}),
        ("task-mismatch", {"task_digest": bytes(32)}),
        ("signature-invalid", {"key_id": "0" * 16}),
        ("unexpected-metric", {"metrics": {"age": 1.0}}),
        ("out-of-range", {"metrics": {"accuracy": 1.5}}),
        ("out-of-range", {"metrics": {"accuracy": -0.5}}),
        ("out-of-range", {"metrics": {"loss": 1.7e308}}),
    ],
)
def test_each_claim_of_the_header_has_its_own_code(data: bytes, code: str, changes: dict[str, Any]) -> None:
    header = check(data).header
    assert outcome(forge(changed_header(header, **changes), contents_of(data, header))) == code


@pytest.mark.parametrize(
    ("code", "rules", "changes"),
    [
        ("missing-metric", {"required": frozenset({"loss"})}, {"metrics": {"accuracy": 0.5}}),
        ("out-of-range", {"samples": (1, 40)}, {"samples": 41}),
        ("out-of-range", {"samples": (1, 40)}, {"samples": 0}),
        ("out-of-range", {"limits": lambda n, found: {"loss": (0, n * found["accuracy"])}}, {"samples": 1}),
    ],
)
def test_a_contract_may_say_more_of_figures_than_its_digest(
    data: bytes, code: str, rules: dict[str, Any], changes: dict[str, Any]
) -> None:
    contract = dataclasses.replace(CONTRACT, **rules)
    assert contract.digest() == CONTRACT.digest()
    header, expected = check(data).header, dataclasses.replace(EXPECTED_UPDATE, contract=contract)
    good = forge(changed_header(header, samples=40), contents_of(data, header))
    assert check(good, expected=expected).header.samples == 40
    with refusal(code):
        check(forge(changed_header(header, **changes), contents_of(data, header)), expected=expected)


def test_a_metric_that_is_required_is_declared() -> None:
    with pytest.raises(MethodError, match="metric steps is required; declare it"):
        dataclasses.replace(CONTRACT, required=frozenset({"steps"}))


@pytest.mark.parametrize(
    ("code", "field", "value"),
    [
        ("unsupported", "protocol", 2),
        ("unsupported", "digest", "blake2"),
        ("unsupported", "encoding", "gzip"),
        ("malformed", "protocol", True),
        ("malformed", "samples", -1),
        ("malformed", "samples", True),
        ("malformed", "round", 1 << 63),
        ("malformed", "job", "two words"),
        ("malformed", "task", ""),
        ("malformed", "contract", bytes(31)),
        ("malformed", "length", 0),
        ("malformed", "metrics", {"loss": 1}),
        ("malformed", "metrics", {"loss": 1.0, "accuracy": 1.0}),
        ("malformed", "blocks", {}),
        ("malformed", "blocks", [7]),
        ("not-finite", "metrics", {"loss": float("inf")}),
    ],
)
def test_fields_are_read_strictly(data: bytes, code: str, field: str, value: object) -> None:
    header = check(data).header
    fields = unpack_map("test", encode_header(header)) | {field: value}
    assert outcome(forge_signed(pack(fields), header, contents_of(data, header))) == code


@pytest.mark.parametrize(
    ("code", "field", "value"),
    [
        ("malformed", "offset", 64),
        ("malformed", "length", 61),
        ("malformed", "shape", [5, 4]),
        ("malformed", "shape", [-3, -5]),
        ("malformed", "shape", [True, 15]),
        ("malformed", "name", "a b"),
        ("wrong-dtype", "dtype", "complex64"),
        ("wrong-dtype", "dtype", "int32"),
        ("wrong-shape", "shape", [5, 3]),
        ("wrong-kind", "kind", "raw_data"),
        ("wrong-kind", "kind", "averaged_gradients"),
        ("unexpected-block", "name", "patients"),
        ("digest-mismatch", "digest", bytes(32)),
    ],
)
def test_block_entries_are_read_strictly(data: bytes, code: str, field: str, value: object) -> None:
    header = check(data).header
    fields = unpack_map("test", encode_header(header))
    fields["blocks"][0][field] = value
    assert outcome(forge_signed(pack(fields), header, contents_of(data, header))) == code


def test_a_header_has_one_encoding_only(data: bytes) -> None:
    header = check(data).header
    fields = unpack_map("test", encode_header(header))
    reordered = pack(dict(sorted(fields.items())))
    longer = encode_header(header).replace(b"\xa5round\x03", b"\xa5round\xcc\x03")
    extended = pack(fields | {"note": 1})
    shortened = pack({key: value for key, value in fields.items() if key != "samples"})
    for forged in (reordered, longer, extended, shortened):
        assert outcome(forge_signed(forged, header, contents_of(data, header))) == "malformed"


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", ["encoder.weight", "means/0"])
def test_values_that_are_not_finite_are_refused_on_both_sides(
    tmp_path: Path, data: bytes, value: float, name: str
) -> None:
    header = check(data).header
    blocks = [(b, np.full_like(a, value) if b.name == name else a) for b, a in payloads()]
    with pytest.raises(Problem, match=f"^not-finite: block {name}"):
        write(tmp_path / "update", blocks=blocks)
    assert list(tmp_path.iterdir()) == []
    contents = [array.tobytes() for _, array in blocks]
    entries = tuple(
        dataclasses.replace(entry, digest=hashlib.sha256(content).digest())
        for entry, content in zip(header.blocks, contents, strict=True)
    )
    forged = forge(changed_header(header, blocks=entries), contents)
    assert outcome(forged) == outcome(forged, *[3] * (len(forged) // 3)) == "not-finite"


def test_padding_carries_nothing(data: bytes) -> None:
    header = check(data).header
    gap_end = len(data) - header.length + header.blocks[1].offset - 5
    assert data[gap_end - 1 : gap_end] == b"\xc0"
    hidden = data[: gap_end - 1] + b"\x2a" + data[gap_end:]
    assert outcome(hidden) == "malformed"
