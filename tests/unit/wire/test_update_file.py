"""Updates as files on the disk: what the writer makes and the reader maps."""

from __future__ import annotations

import dataclasses
import os
from io import BytesIO
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest

from fedsilo.errors import Problem
from fedsilo.wire import (
    Contract,
    ExpectedBlock,
    new_update,
    open_signed_part,
    open_update,
    signed_part,
    stored_digest,
    update_digest,
)
from fedsilo.wire.header import ALIGNMENT, decode_header, encode_header
from tests.unit.wire.examples import (
    CONTRACT,
    EXPECTED_UPDATE,
    KEY,
    check,
    contents_of,
    payloads,
    refusal,
    write,
)
from tests.updates import digest_of

REFUSALS = {
    *("malformed", "truncated", "too-long", "digest-mismatch", "unsupported", "wrong-dtype", "wrong-kind"),
    "not-finite",
}
"""What a changed file of an update may be refused as."""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return write(tmp_path_factory.mktemp("update") / "update")


def test_the_receiver_gets_what_the_sender_wrote(tmp_path: Path) -> None:
    data = write(tmp_path / "update")
    accepted = check(data)
    assert accepted.digest == digest_of(data)
    assert accepted.header.samples == 41
    assert accepted.header.metrics == {"accuracy": 0.25, "loss": 0.5}
    with open_update(tmp_path / "update") as update:
        assert update.header == accepted.header
        assert update.names("model") == ["encoder.weight", "encoder.steps"]
        for block, array in payloads():
            found = update.tensor(block.name)
            assert found.dtype == array.dtype
            np.testing.assert_array_equal(found, array)


def test_writing_twice_gives_the_same_bytes_and_their_digest(tmp_path: Path, data: bytes) -> None:
    assert write(tmp_path / "again") == data
    assert [path.name for path in tmp_path.iterdir()] == ["again"]


def test_the_name_is_that_of_header_and_signature(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "update"
    path.write_bytes(data)
    assert update_digest(signed_part(path)) == stored_digest(path) == check(data).digest == digest_of(data)
    other = write(tmp_path / "other", samples=42)
    assert stored_digest(tmp_path / "other") == check(other).digest != digest_of(data)


def test_no_other_file_holds_under_the_name(tmp_path: Path, data: bytes) -> None:
    """A disk, or whoever may write to it: what has the name and is not the update is refused by its blocks and gaps."""
    path, signed = tmp_path / "update", len(data) - check(data).header.length
    changed_files = [
        data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :]
        for position in range(0, len(data), 3)
    ]
    changed_files += [data[:length] for length in range(0, len(data), 11)] + [data + b"\xc0", data + data]
    held = set()
    for content in changed_files:
        path.write_bytes(content)
        try:
            held.add(stored_digest(path))
        except Problem as problem:
            assert problem.code in REFUSALS, problem
    assert held, "a changed signature is another name, and not looked at"
    assert digest_of(data) not in held
    path.write_bytes(data[:signed] + bytes(len(data) - signed))
    with refusal("digest-mismatch"):
        stored_digest(path)


def test_any_msgpack_reader_can_walk_the_file(data: bytes) -> None:
    parts = [part for part in msgpack.Unpacker(BytesIO(data)) if part is not None]
    assert parts[0] == encode_header(check(data).header)
    assert len(parts[1]) == 64
    assert parts[2:] == contents_of(data, check(data).header)


def test_payloads_are_aligned(data: bytes) -> None:
    header = check(data).header
    start = len(data) - header.length
    assert all((start + block.offset) % ALIGNMENT == 0 for block in header.blocks)
    assert data[start:][:60] == payloads()[0][1].tobytes()


def test_an_empty_tensor_travels(tmp_path: Path) -> None:
    block = ExpectedBlock("model", "empty", (0, 4), "float32")
    contract = Contract((block,))
    blocks = [(block, np.empty((0, 4), np.float32))]
    data = write(tmp_path / "update", contract=contract, blocks=blocks, metrics={})
    check(data, len(data) - 1, expected=dataclasses.replace(EXPECTED_UPDATE, contract=contract))
    with open_update(tmp_path / "update") as update:
        assert update.tensor("empty").shape == (0, 4)


def test_a_bool_is_zero_or_one(tmp_path: Path) -> None:
    block = ExpectedBlock("model", "mask", (4,), "bool")
    mask = np.array([0, 1, 2, 1], np.uint8).view(np.bool_)
    with refusal("malformed"):
        write(tmp_path / "update", contract=Contract((block,)), blocks=[(block, mask)], metrics={})


def test_the_writer_refuses_what_the_contract_does(tmp_path: Path) -> None:
    first, *rest = payloads()
    cases: list[tuple[str, dict[str, Any]]] = [
        ("missing-block", {"blocks": rest}),
        ("unexpected-block", {"blocks": [*rest[:1], first, *rest[1:]]}),
        ("wrong-shape", {"blocks": [(first[0], first[1].T), *rest]}),
        ("wrong-dtype", {"blocks": [(first[0], first[1].astype(np.float64)), *rest]}),
        ("wrong-dtype", {"blocks": [(first[0], first[1].astype(np.complex64)), *rest]}),
        ("unexpected-metric", {"metrics": {"age": 1.0}}),
        ("out-of-range", {"metrics": {"accuracy": 1.5}}),
        ("not-finite", {"metrics": {"loss": float("nan")}}),
        ("malformed", {"sender": "two words"}),
    ]
    for code, changes in cases:
        with refusal(code):
            write(tmp_path / "update", **changes)
    assert list(tmp_path.iterdir()) == []


def test_big_endian_and_strided_arrays_are_written_as_the_format_wants_them(
    tmp_path: Path, data: bytes
) -> None:
    (block, array), *rest = payloads()
    for same in (array.astype(">f4"), np.asfortranarray(array), array[::-1][::-1]):
        assert write(tmp_path / "update", blocks=[(block, same), *rest]) == data


def test_blocks_may_come_in_any_order_and_in_pieces(tmp_path: Path, data: bytes) -> None:
    header = check(data).header
    with new_update(tmp_path / "update", header, CONTRACT, KEY) as update:
        for block, array in reversed(payloads()):
            content = array.tobytes()
            for start in range(0, len(content), 8):
                update.write(block.name, memoryview(content[start : start + 8]))
        for block, array in payloads():
            np.testing.assert_array_equal(update.read(block.name), array)
        assert update.publish() == digest_of(data)
    assert (tmp_path / "update").read_bytes() == data


def test_what_was_not_written_whole_or_not_published_leaves_nothing(tmp_path: Path, data: bytes) -> None:
    header = check(data).header
    with new_update(tmp_path / "update", header, CONTRACT, KEY) as update:
        for block, array in payloads():
            update.write(block.name, memoryview(array.tobytes()))
    assert list(tmp_path.iterdir()) == []
    with (
        pytest.raises(ValueError, match=r"block encoder.weight: 56 of 60 bytes"),
        new_update(tmp_path / "update", header, CONTRACT, KEY) as update,
    ):
        update.write("encoder.weight", memoryview(payloads()[0][1].tobytes())[:56])
        update.publish()
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_cut_off_while_it_is_written_is_refused(tmp_path: Path, data: bytes) -> None:
    with (
        pytest.raises(Problem, match=r"truncated: .* within encoder\.weight"),
        new_update(tmp_path / "update", check(data).header, CONTRACT, KEY) as update,
    ):
        update.write("encoder.weight", memoryview(payloads()[0][1].tobytes()))
        (temporary,) = tmp_path.iterdir()
        os.truncate(temporary, 0)
        update.read("encoder.weight")
    assert list(tmp_path.iterdir()) == []


def test_open_update_refuses_what_is_not_an_update(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "update"
    for bad in (b"", b"\xc4", data[:200], data[:-1], data + b"\xc0", b"\xc6\xff\xff\xff\xff" + data):
        path.write_bytes(bad)
        with pytest.raises(Problem):
            open_update(path)
    path.write_bytes(data)
    with open_update(path) as update, refusal("missing-block"):
        update.tensor("patients")


def test_decoding_is_the_inverse_of_encoding(data: bytes) -> None:
    header = check(data).header
    assert decode_header(encode_header(header)) == header


def test_an_unwritable_directory_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        write(tmp_path / "absent" / "update")


def test_blocks_may_be_an_iterator(tmp_path: Path, data: bytes) -> None:
    assert write(tmp_path / "update", blocks=iter(payloads())) == data


def test_header_and_signature_are_verified_without_the_blocks(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "update").write_bytes(data)
    part = signed_part(tmp_path / "update")
    assert data.startswith(part)
    assert len(part) < len(data) - check(data).header.length
    assert open_signed_part(part, KEY.verify_key) == check(data).header
    with refusal("signature-invalid"):
        open_signed_part(part[:-1] + bytes([part[-1] ^ 1]), KEY.verify_key)
    with refusal("truncated"):
        open_signed_part(part[:-1], KEY.verify_key)
    with refusal("too-long"):
        open_signed_part(data, KEY.verify_key)
